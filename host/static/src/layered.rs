// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A dependency graph as a drawing (SVG): layers from callers down to callees (Sugiyama, Tagawa and Toda, 1981). Where
//! libraries call each other, the edge with fewer calls leads upwards.

use crate::{
    graph::{Edge, Graph},
    treemap::escape,
};
use std::{collections::BTreeMap, fmt::Write as _};

const LETTER: f64 = 7.2;
const HEIGHT: f64 = 34.0;
const BETWEEN_LAYERS: f64 = 84.0;
const BETWEEN_NODES: f64 = 22.0;
/// What an edge that passes a layer takes there.
const PASSING: f64 = 6.0;
const MARGIN: f64 = 24.0;
const HEAD: f64 = 52.0;
/// Sweeps that put what is connected above each other; more change little.
const SWEEPS: usize = 24;
/// With more edges, numbers on them hide each other: they are shown for the library under the pointer.
const NUMBERED: usize = 60;

/// A library, or a place where an edge passes a layer.
struct Place {
    layer: usize,
    width: f64,
    /// The middle.
    x: f64,
}

/// The drawing's state: places by layer in their order, and the segments between neighbouring layers.
struct Drawing {
    places: Vec<Place>,
    layers: Vec<Vec<usize>>,
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
}

/// Draws a graph. `title` is what it is of.
pub fn draw(graph: &Graph, title: &str) -> String {
    let index: BTreeMap<&str, usize> =
        graph.nodes.iter().enumerate().map(|(n, node)| (node.library.as_str(), n)).collect();
    let ends: Vec<(usize, usize)> =
        graph.edges.iter().map(|edge| (index[edge.from.as_str()], index[edge.to.as_str()])).collect();
    let weights: Vec<u64> = graph.edges.iter().map(|edge| edge.calls + edge.references).collect();
    let order = order(graph.nodes.len(), &ends, &weights);
    let layer = layers(&order, &ends);
    let widths: Vec<f64> = graph
        .nodes
        .iter()
        .map(|node| LETTER * node.library.len().max(node.bytes.to_string().len() + 6) as f64 + 12.0)
        .collect();
    let mut drawing = Drawing::new(&layer, &widths);
    let routes: Vec<Vec<usize>> = ends.iter().map(|(from, to)| drawing.route(*from, *to)).collect();
    drawing.arrange();
    svg(graph, title, &drawing, &ends, &routes)
}

/// An order in which few calls lead back: Eades, Lin and Smyth, 1993, by weights.
fn order(nodes: usize, ends: &[(usize, usize)], weights: &[u64]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..nodes).collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let sums = |node: usize| {
            let (mut out, mut into) = (0, 0);
            for ((from, to), weight) in ends.iter().zip(weights) {
                if left.contains(from) && left.contains(to) {
                    out += if *from == node { *weight } else { 0 };
                    into += if *to == node { *weight } else { 0 };
                }
            }
            (i128::from(out), i128::from(into))
        };
        let all: Vec<(usize, (i128, i128))> = left.iter().map(|node| (*node, sums(*node))).collect();
        let taken = if let Some((sink, _)) = all.iter().find(|(_, (out, _))| *out == 0) {
            last.push(*sink);
            *sink
        } else {
            // `left` is not empty, so there is a largest one.
            let next =
                all.iter().max_by_key(|(_, (out, into))| out - into).map_or(left[0], |(node, _)| *node);
            first.push(next);
            next
        };
        left.retain(|node| *node != taken);
    }
    first.extend(last.into_iter().rev());
    first
}

/// The layer of each node: one below the lowest of those that call it.
fn layers(order: &[usize], ends: &[(usize, usize)]) -> Vec<usize> {
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(n, node)| rank[*node] = n);
    let mut layer = vec![0; order.len()];
    for node in order {
        for (from, to) in ends.iter().filter(|(from, to)| from == node && rank[*to] > rank[*from]) {
            layer[*to] = layer[*to].max(layer[*from] + 1);
        }
    }
    layer
}

impl Drawing {
    fn new(layer: &[usize], widths: &[f64]) -> Drawing {
        let depth = layer.iter().max().map_or(0, |most| most + 1);
        let mut drawing = Drawing {
            places: Vec::new(),
            layers: vec![Vec::new(); depth],
            above: Vec::new(),
            below: Vec::new(),
        };
        for (layer, width) in layer.iter().zip(widths) {
            drawing.add(*layer, *width);
        }
        drawing
    }

    fn add(&mut self, layer: usize, width: f64) -> usize {
        let place = self.places.len();
        self.places.push(Place { layer, width, x: 0.0 });
        self.layers[layer].push(place);
        self.above.push(Vec::new());
        self.below.push(Vec::new());
        place
    }

    /// The places that an edge goes through, from top to bottom, with new ones in the layers between.
    fn route(&mut self, from: usize, to: usize) -> Vec<usize> {
        let (top, bottom) =
            if self.places[from].layer <= self.places[to].layer { (from, to) } else { (to, from) };
        let mut route = vec![top];
        for layer in self.places[top].layer + 1..self.places[bottom].layer {
            route.push(self.add(layer, PASSING));
        }
        route.push(bottom);
        for pair in route.windows(2) {
            self.below[pair[0]].push(pair[1]);
            self.above[pair[1]].push(pair[0]);
        }
        route
    }

    /// Orders the layers so that edges cross little, and moves places above each other.
    fn arrange(&mut self) {
        for layer in 0..self.layers.len() {
            self.spread(layer);
        }
        for sweep in 0..SWEEPS {
            let depth = self.layers.len();
            let down = sweep % 2 == 0;
            for step in 0..depth {
                let layer = if down { step } else { depth - 1 - step };
                let mut wanted: Vec<(f64, usize)> = Vec::new();
                for place in &self.layers[layer] {
                    let near = if down { &self.above[*place] } else { &self.below[*place] };
                    let mean = near.iter().map(|n| self.places[*n].x).sum::<f64>() / near.len().max(1) as f64;
                    wanted.push((if near.is_empty() { self.places[*place].x } else { mean }, *place));
                }
                wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = wanted.iter().map(|(_, place)| *place).collect();
                wanted.iter().for_each(|(x, place)| self.places[*place].x = *x);
                self.part(layer);
            }
        }
    }

    /// Puts a layer's places side by side.
    fn spread(&mut self, layer: usize) {
        let mut x = 0.0;
        for place in self.layers[layer].clone() {
            let width = self.places[place].width;
            self.places[place].x = x + width / 2.0;
            x += width + BETWEEN_NODES;
        }
    }

    /// Moves places of a layer apart that would overlap: groups that touch move as one to the mean of what they want.
    fn part(&mut self, layer: usize) {
        // For each group: where its first place's left edge wants to be, how many places wish it, its width, its places.
        let mut groups: Vec<(f64, f64, f64, Vec<usize>)> = Vec::new();
        for place in &self.layers[layer] {
            let Place { width, x, .. } = self.places[*place];
            let mut group = (x - width / 2.0, 1.0, width + BETWEEN_NODES, vec![*place]);
            while let Some(before) = groups.pop_if(|before| before.0 + before.2 > group.0) {
                let count = before.1 + group.1;
                let begin = (before.0 * before.1 + (group.0 - before.2) * group.1) / count;
                group = (begin, count, before.2 + group.2, [before.3, group.3].concat());
            }
            groups.push(group);
        }
        for (begin, _, _, places) in groups {
            let mut x = begin;
            for place in places {
                let width = self.places[place].width;
                self.places[place].x = x + width / 2.0;
                x += width + BETWEEN_NODES;
            }
        }
    }
}

fn svg(
    graph: &Graph,
    title: &str,
    drawing: &Drawing,
    ends: &[(usize, usize)],
    routes: &[Vec<usize>],
) -> String {
    let left = drawing.places.iter().map(|p| p.x - p.width / 2.0).fold(f64::INFINITY, f64::min);
    let right = drawing.places.iter().map(|p| p.x + p.width / 2.0).fold(f64::NEG_INFINITY, f64::max);
    let x = |place: usize| drawing.places[place].x - left + MARGIN;
    let y = |place: usize| HEAD + MARGIN + drawing.places[place].layer as f64 * BETWEEN_LAYERS;
    let width = if right > left { right - left } else { 0.0 } + 2.0 * MARGIN;
    let width = width.max(LETTER * 1.2 * title.len() as f64 + 2.0 * MARGIN).max(560.0);
    let height =
        HEAD + 2.0 * MARGIN + drawing.layers.len() as f64 * BETWEEN_LAYERS - (BETWEEN_LAYERS - HEIGHT);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>{STYLE}{}</style>\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\" markerUnits=\"userSpaceOnUse\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"16\">{}</text>\n<text x=\"{MARGIN}\" y=\"44\">{} libraries, {} edges: calls and \
         references of what the link kept; point at a library for its own, click to keep it</text>\n",
        if graph.edges.len() > NUMBERED { ".edge text{visibility:hidden}" } else { "" },
        escape(title),
        graph.nodes.len(),
        graph.edges.len()
    );
    for ((edge, (from, to)), route) in graph.edges.iter().zip(ends).zip(routes) {
        let points: Vec<(f64, f64)> =
            route.iter().map(|place| (x(*place), y(*place) + HEIGHT / 2.0)).collect();
        draw_edge(&mut out, edge, points, drawing.places[*from].layer > drawing.places[*to].layer);
    }
    for (n, node) in graph.nodes.iter().enumerate() {
        let (half, name) = (drawing.places[n].width / 2.0, escape(&node.library));
        let _ = writeln!(
            out,
            "<g class=\"node\" data-name=\"{name}\"><title>{name}: {} bytes</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
             height=\"{HEIGHT}\" rx=\"4\"/><text x=\"{:.1}\" y=\"{:.1}\">{name}</text><text class=\"bytes\" x=\"{:.1}\" y=\"{:.1}\">{} bytes</text></g>",
            node.bytes,
            x(n) - half,
            y(n),
            2.0 * half,
            x(n),
            y(n) + 14.0,
            x(n),
            y(n) + 28.0,
            node.bytes
        );
    }
    let _ = write!(out, "<script><![CDATA[{SCRIPT}]]></script>\n</svg>\n");
    out
}

/// A curve through the middles of its places; `upwards`: it leads from the last one to the first.
fn draw_edge(out: &mut String, edge: &Edge, mut points: Vec<(f64, f64)>, upwards: bool) {
    let last = points.len() - 1;
    points[0].1 += HEIGHT / 2.0;
    points[last].1 -= HEIGHT / 2.0;
    if upwards {
        points.reverse();
    }
    let mut path = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let middle = (pair[0].1 + pair[1].1) / 2.0;
        let _ = write!(
            path,
            "C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}",
            pair[0].0, pair[1].0, pair[1].0, pair[1].1
        );
    }
    let (from, to) = (escape(&edge.from), escape(&edge.to));
    let count = edge.calls + edge.references;
    let dotted = if edge.calls == 0 { " stroke-dasharray=\"2 3\"" } else { "" };
    // In the first segment's middle.
    let (x, y) = ((points[0].0 + points[1].0) / 2.0, (points[0].1 + points[1].1) / 2.0);
    let _ = writeln!(
        out,
        "<g class=\"edge\" data-from=\"{from}\" data-to=\"{to}\"><title>{from} to {to}: {} calls, {} references to {} symbols</title>\
         <path d=\"{path}\" stroke-width=\"{:.1}\"{dotted} marker-end=\"url(#tip)\"/><text x=\"{x:.1}\" y=\"{y:.1}\">{count}</text></g>",
        edge.calls,
        edge.references,
        edge.symbols,
        0.6 + (count as f64).log10().max(0.0)
    );
}

const STYLE: &str = ".node rect{fill:#dce9f7;stroke:#456}.node text{text-anchor:middle}.node .bytes{font-size:10px;fill:#456}\
                     .node{cursor:pointer}.edge path{fill:none;stroke:#8796a5}.edge text{font-size:10px;fill:#823}\
                     .away{opacity:.08}.node.away{opacity:.3}.near text{visibility:visible!important}.near path{stroke:#c40}";

/// The pointer on a library shows its edges alone; a click keeps that until the next one.
const SCRIPT: &str = r#"
(function () {
  var all = function (s) { return Array.from(document.documentElement.querySelectorAll(s)); };
  var nodes = all('.node'), edges = all('.edge'), kept = null;
  var at = function (e, k) { return e.getAttribute('data-' + k); };
  function show(name) {
    var near = {};
    edges.forEach(function (e) {
      var mine = at(e, 'from') === name || at(e, 'to') === name;
      if (mine) { near[at(e, 'from')] = near[at(e, 'to')] = true; }
      e.classList.toggle('near', !!name && mine);
      e.classList.toggle('away', !!name && !mine);
    });
    nodes.forEach(function (n) { n.classList.toggle('away', !!name && at(n, 'name') !== name && !near[at(n, 'name')]); });
  }
  nodes.forEach(function (n) {
    n.addEventListener('mouseenter', function () { if (!kept) { show(at(n, 'name')); } });
    n.addEventListener('mouseleave', function () { if (!kept) { show(null); } });
    n.addEventListener('click', function () { kept = kept === at(n, 'name') ? null : at(n, 'name'); show(kept); });
  });
}());
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;

    fn graph(edges: &[(&str, &str, u64)]) -> Graph {
        let mut names: Vec<&str> = edges.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        names.sort_unstable();
        names.dedup();
        let node = |name: &&str| Node { library: (*name).into(), bytes: 1 };
        let edge = |(from, to, calls): &(&str, &str, u64)| Edge {
            from: (*from).into(),
            to: (*to).into(),
            calls: *calls,
            references: 0,
            symbols: 1,
        };
        Graph { nodes: names.iter().map(node).collect(), edges: edges.iter().map(edge).collect() }
    }

    #[test]
    fn callers_are_above_callees_and_of_a_circle_the_fewest_calls_lead_up() {
        let ends = [(0, 1), (1, 2), (2, 0), (0, 2)];
        let layer = layers(&order(3, &ends, &[9, 9, 1, 9]), &ends);
        assert_eq!(layer, [0, 1, 2]);
    }

    #[test]
    fn no_two_places_of_a_layer_overlap() {
        let mut ends = Vec::new();
        for from in 0..20 {
            ends.extend((from + 1..20).filter(|to| (from * 7 + to * 3) % 4 == 0).map(|to| (from, to)));
        }
        let layer = layers(&order(20, &ends, &vec![1; ends.len()]), &ends);
        let mut drawing = Drawing::new(&layer, &[60.0; 20]);
        for (from, to) in &ends {
            drawing.route(*from, *to);
        }
        drawing.arrange();
        for layer in &drawing.layers {
            for pair in layer.windows(2) {
                let (one, other) = (&drawing.places[pair[0]], &drawing.places[pair[1]]);
                assert!(one.x + one.width / 2.0 <= other.x - other.width / 2.0 + 1e-6);
            }
        }
    }

    #[test]
    fn a_drawing_has_each_library_and_edge_and_names_are_escaped() {
        let text = draw(&graph(&[("posix", "vfs", 12), ("vfs", "ramfs", 3), ("posix", "ramfs", 1)]), "a <b>");
        assert_eq!(text.matches("class=\"node\"").count(), 3);
        assert_eq!(text.matches("class=\"edge\"").count(), 3);
        assert!(text.contains("a &lt;b&gt;") && text.contains(">12</text>"), "{text}");
        // An image of one library has a drawing as well.
        assert!(
            draw(&Graph { nodes: vec![Node { library: "a".into(), bytes: 1 }], edges: vec![] }, "x")
                .contains("node")
        );
    }
}
