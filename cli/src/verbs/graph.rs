// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith graph`: which micro-libraries of an image call which.

use crate::{
    built::{self, Wanted},
    fault::{Fault, Result},
    template::Template,
    verbs::{print_formatted, print_json, print_table},
};
use std::path::PathBuf;
use unilith_machine::store::Store;
use unilith_static::{graph::Graph, layered};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith graph redis
  unilith graph --static --svg hello.svg ./hello
  unilith graph --dot - redis | dot -Tpdf -o redis.pdf

Counted is what the link kept: a call that was inlined is none.")]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Also what Rust itself brings (core, alloc): nearly everything refers to it
    #[arg(long)]
    all: bool,
    /// Only edges of this micro-library, from it and to it; may repeat
    #[arg(long, value_name = "NAME")]
    library: Vec<String>,
    /// Only edges of so many calls and references at least
    #[arg(long, value_name = "N", default_value_t = 1)]
    least: u64,
    /// Draw the graph, to be looked at in a browser, into a file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the graph for Graphviz into a file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Only these fields of each edge: {{.From}} {{.To}} {{.Calls}} {{.References}} {{.Symbols}}; `table` before them
    /// prints a header
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "json")]
    format: Option<String>,
    /// All of it as JSON
    #[arg(long)]
    json: bool,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let template = args.format.as_deref().map(Template::parse).transpose()?;
    let image = args.wanted.find(store)?;
    let mut graph = Graph::of(&image.anatomy, args.all);
    choose(&mut graph, args)?;
    if let Some(path) = &args.dot {
        built::write(path, &graph.dot(&image.title))?;
    }
    if let Some(path) = &args.svg {
        built::write(path, &layered::draw(&graph, &image.title))?;
    }
    if args.json {
        print_json(&graph)?;
    } else if let Some(template) = template {
        let row = |edge: &unilith_static::graph::Edge| {
            serde_json::json!({
                "From": edge.from, "To": edge.to, "Calls": edge.calls, "References": edge.references, "Symbols": edge.symbols
            })
        };
        print_formatted(&graph.edges.iter().map(row).collect::<Vec<_>>(), &template)?;
    } else if args.svg.is_none() && args.dot.is_none() {
        let mut table = vec![["FROM", "TO", "CALLS", "REFERENCES", "SYMBOLS"].map(String::from).to_vec()];
        graph.edges.sort_by_key(|edge| (edge.from.clone(), std::cmp::Reverse(edge.calls + edge.references)));
        for edge in &graph.edges {
            let counts = [edge.calls, edge.references, edge.symbols].map(|count| count.to_string());
            table.push([&[edge.from.clone(), edge.to.clone()][..], &counts].concat());
        }
        print_table(&table);
    }
    Ok(0)
}

/// Leaves the edges that were asked for, and what they connect.
fn choose(graph: &mut Graph, args: &Args) -> Result<()> {
    for name in &args.library {
        if !graph.nodes.iter().any(|node| node.library == *name) {
            let known: Vec<&str> = graph.nodes.iter().map(|node| node.library.as_str()).collect();
            return Err(Fault::new(format!(
                "--library {name}: the image has no such micro-library; it has {}",
                known.join(", ")
            )));
        }
    }
    let is_wanted = |name: &String| args.library.is_empty() || args.library.contains(name);
    graph.edges.retain(|edge| {
        (is_wanted(&edge.from) || is_wanted(&edge.to)) && edge.calls + edge.references >= args.least
    });
    let edges = &graph.edges;
    if !args.library.is_empty() || args.least > 1 {
        graph.nodes.retain(|node| {
            args.library.contains(&node.library)
                || edges.iter().any(|edge| edge.from == node.library || edge.to == node.library)
        });
    }
    Ok(())
}
