// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which micro-libraries of an image call which: counted in what the link kept, as figures 1 to 3 of the Unikraft paper count it.

use crate::{
    anatomy::{Anatomy, PADDING, SHARED},
    owner::RUST,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A micro-library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    pub library: String,
    /// In the image.
    pub bytes: u64,
}

/// What one micro-library refers to of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    pub from: String,
    pub to: String,
    /// Instructions that call or jump.
    pub calls: u64,
    /// Instructions and pointers that take an address.
    pub references: u64,
    /// Functions and variables that they lead to.
    pub symbols: u64,
}

/// The dependency graph of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// By name.
    pub nodes: Vec<Node>,
    /// By names.
    pub edges: Vec<Edge>,
}

impl Graph {
    /// `all`: also what Rust itself brings, which nearly everything refers to.
    pub fn of(anatomy: &Anatomy, all: bool) -> Graph {
        let is_shown =
            |library: &str| library != PADDING && library != SHARED && (all || !RUST.contains(&library));
        let mut nodes: BTreeMap<&str, u64> = BTreeMap::new();
        for piece in anatomy.pieces.iter().filter(|piece| is_shown(&piece.library)) {
            *nodes.entry(&piece.library).or_default() += piece.bytes;
        }
        let mut edges: BTreeMap<(&str, &str), (Edge, BTreeSet<usize>)> = BTreeMap::new();
        for reference in &anatomy.references {
            let (from, to) = (&anatomy.pieces[reference.from].library, &anatomy.pieces[reference.to].library);
            if from == to || !is_shown(from) || !is_shown(to) {
                continue;
            }
            let new = || {
                let (from, to) = (from.clone(), to.clone());
                (Edge { from, to, calls: 0, references: 0, symbols: 0 }, BTreeSet::new())
            };
            let (edge, symbols) = edges.entry((from, to)).or_insert_with(new);
            symbols.insert(reference.to);
            *(if reference.is_call { &mut edge.calls } else { &mut edge.references }) += 1;
        }
        Graph {
            nodes: nodes
                .into_iter()
                .map(|(library, bytes)| Node { library: library.into(), bytes })
                .collect(),
            edges: edges
                .into_values()
                .map(|(edge, symbols)| Edge { symbols: symbols.len() as u64, ..edge })
                .collect(),
        }
    }

    /// In the language of Graphviz.
    pub fn dot(&self, title: &str) -> String {
        let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut out = format!("digraph {} {{\n    node [shape=box];\n", quote(title));
        for node in &self.nodes {
            let label = quote(&format!("{}\n{} bytes", node.library, node.bytes)).replace('\n', "\\n");
            out.push_str(&format!("    {} [label={label}];\n", quote(&node.library)));
        }
        for Edge { from, to, calls, references, symbols } in &self.edges {
            let style = if *calls == 0 { ", style=dotted" } else { "" };
            let tip = format!("{calls} calls, {references} references to {symbols} symbols");
            out.push_str(&format!(
                "    {} -> {} [label=\"{}\", tooltip=\"{tip}\"{style}];\n",
                quote(from),
                quote(to),
                calls + references
            ));
        }
        out + "}\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anatomy::{Piece, Reference};

    #[test]
    fn calls_and_references_between_libraries_are_counted_and_those_within_one_are_not() {
        let piece = |address, library: &str| Piece {
            address,
            length: 16,
            bytes: 16,
            library: library.into(),
            name: address.to_string(),
            is_code: true,
            on_demand: false,
        };
        let pieces = vec![
            piece(0, "posix"),
            piece(16, "posix"),
            piece(32, "vfs"),
            piece(48, "core"),
            piece(64, "vfs"),
        ];
        let to = |from, to, is_call| Reference { from, to, is_call };
        let references = vec![
            to(0, 1, true),
            to(0, 2, true),
            to(1, 2, true),
            to(1, 4, false),
            to(0, 3, true),
            to(2, 0, false),
        ];
        let anatomy = Anatomy { pieces, references };
        let graph = Graph::of(&anatomy, false);
        let edge = |from: &str, to: &str, calls, references, symbols| Edge {
            from: from.into(),
            to: to.into(),
            calls,
            references,
            symbols,
        };
        assert_eq!(graph.edges, [edge("posix", "vfs", 2, 1, 2), edge("vfs", "posix", 0, 1, 1)]);
        assert_eq!(
            graph.nodes.iter().map(|n| (n.library.as_str(), n.bytes)).collect::<Vec<_>>(),
            [("posix", 32), ("vfs", 32)]
        );
        assert_eq!(Graph::of(&anatomy, true).edges[0], edge("posix", "core", 1, 0, 1));
        let dot = graph.dot("an \"image\"");
        assert!(dot.starts_with("digraph \"an \\\"image\\\"\" {"), "{dot}");
        assert!(dot.contains("\"posix\" -> \"vfs\" [label=\"3\""), "{dot}");
    }
}
