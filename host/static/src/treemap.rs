// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image is made of as a treemap (SVG): areas are bytes, a library's functions are within it. The layout is
//! "squarified": Bruls, Huizing and van Wijk, 1999. A script in the file, which needs nothing else, zooms in on a click.

use crate::size::Size;
use std::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 800.0;
/// The line above, with the title.
const HEAD: f64 = 44.0;
/// The name above a library's functions.
const LABEL: f64 = 16.0;
/// What would be smaller than this share of the image is drawn together with its like: a square of some three and a half units.
const LEAST_SHARE: u64 = 80_000;

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// The treemap of an image. `title` is what it is of.
pub fn draw(size: &Size, title: &str) -> String {
    let total = size.total.max(1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>{STYLE}</style>\n<rect id=\"ground\" width=\"{WIDTH}\" height=\"{}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"16\">{}</text>\n\
         <text id=\"said\" x=\"8\" y=\"38\">{} bytes in {} libraries; click one to zoom in, and again to zoom out</text>\n",
        HEIGHT + HEAD,
        HEIGHT + HEAD,
        escape(title),
        size.total,
        size.libraries.iter().filter(|library| library.bytes > 0).count()
    );
    let libraries: Vec<_> = size.libraries.iter().filter(|library| library.bytes > 0).collect();
    let areas: Vec<f64> = libraries.iter().map(|library| library.bytes as f64).collect();
    let whole = Rect { x: 0.0, y: HEAD, width: WIDTH, height: HEIGHT };
    for (index, (library, rect)) in libraries.iter().zip(squarify(&areas, whole)).enumerate() {
        // Neighbours in the list, which are neighbours in the picture, get hues that are far from each other.
        let hue = (index as u64 * 137) % 360;
        let name = escape(&library.library);
        let share = 100.0 * library.bytes as f64 / total as f64;
        let _ = writeln!(out, "<g class=\"library\" data-name=\"{name}\">");
        let title = format!("{name}: {} bytes, {share:.1} %, {} names", library.bytes, library.items);
        cell(&mut out, rect, &format!("hsl({hue},45%,62%)"), &name, &title, "top");
        let (mut names, mut rest, mut few) = (Vec::new(), 0_u64, 0);
        for item in size.items.iter().filter(|item| !item.on_demand && item.library == library.library) {
            if item.bytes * LEAST_SHARE < total {
                rest += item.bytes;
                few += 1;
            } else {
                names.push((item.name.clone(), item.bytes));
            }
        }
        if rest > 0 {
            names.push((format!("{few} smaller ones"), rest));
        }
        names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let areas: Vec<f64> = names.iter().map(|(_, bytes)| *bytes as f64).collect();
        for ((item, bytes), rect) in names.iter().zip(squarify(&areas, below_label(rect))) {
            let name = escape(item);
            let title = format!("{name}: {bytes} bytes");
            cell(&mut out, rect, &format!("hsl({hue},55%,80%)"), &name, &title, "in");
        }
        out.push_str("</g>\n");
    }
    let _ = write!(out, "<script><![CDATA[{SCRIPT}]]></script>\n</svg>\n");
    out
}

/// Where a library's functions are: below its name, if there is room for one.
fn below_label(rect: Rect) -> Rect {
    let label = if rect.height > 2.0 * LABEL && rect.width > 2.0 * LABEL { LABEL } else { 0.0 };
    Rect { y: rect.y + label, height: rect.height - label, ..rect }
}

fn cell(out: &mut String, rect: Rect, fill: &str, name: &str, title: &str, class: &str) {
    let Rect { x, y, width, height } = rect;
    let shown = fitting(name, width, height);
    let _ = writeln!(
        out,
        "<g class=\"{class}\"><title>{title}</title><rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"/>\
         <text x=\"{:.2}\" y=\"{:.2}\" data-name=\"{name}\">{shown}</text></g>",
        x + 3.0,
        y + 12.0
    );
}

/// As much of a name as there is room for. The script does the same when it zooms.
fn fitting(name: &str, width: f64, height: f64) -> &str {
    const LETTER: f64 = 7.0;
    let room = if height < 14.0 { 0 } else { ((width - 6.0) / LETTER).max(0.0) as usize };
    if room < 3 {
        return "";
    }
    // An escaped letter is cut as a whole or not at all.
    let end = name.char_indices().nth(room).map_or(name.len(), |(at, _)| at);
    let end = name[..end].rfind('&').filter(|at| !name[*at..end].contains(';')).unwrap_or(end);
    &name[..end]
}

/// Cuts a rectangle into parts with these areas, largest first, so that they are nearly squares.
fn squarify(areas: &[f64], mut rest: Rect) -> Vec<Rect> {
    let sum: f64 = areas.iter().sum();
    let scale = rest.width * rest.height / sum.max(f64::MIN_POSITIVE);
    let areas: Vec<f64> = areas.iter().map(|area| area * scale).collect();
    let mut out = Vec::with_capacity(areas.len());
    let mut begin = 0;
    while begin < areas.len() {
        let side = rest.width.min(rest.height);
        let mut end = begin + 1;
        while end < areas.len() && worst(&areas[begin..=end], side) <= worst(&areas[begin..end], side) {
            end += 1;
        }
        let row: f64 = areas[begin..end].iter().sum();
        // A row lies along the shorter side.
        let across = if side > 0.0 { row / side } else { 0.0 };
        let mut along = 0.0;
        for area in &areas[begin..end] {
            let length = if across > 0.0 { area / across } else { 0.0 };
            out.push(if rest.width < rest.height {
                Rect { x: rest.x + along, y: rest.y, width: length, height: across }
            } else {
                Rect { x: rest.x, y: rest.y + along, width: across, height: length }
            });
            along += length;
        }
        if rest.width < rest.height {
            rest = Rect { y: rest.y + across, height: rest.height - across, ..rest };
        } else {
            rest = Rect { x: rest.x + across, width: rest.width - across, ..rest };
        }
        begin = end;
    }
    out
}

/// The largest ratio of sides in a row.
fn worst(row: &[f64], side: f64) -> f64 {
    let sum: f64 = row.iter().sum();
    let most = row.iter().copied().fold(0.0, f64::max);
    let least = row.iter().copied().fold(f64::INFINITY, f64::min);
    (side * side * most / (sum * sum)).max(sum * sum / (side * side * least))
}

/// Text for XML, also within attributes.
pub(crate) fn escape(text: &str) -> String {
    let one = |c: char| match c {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        c if c.is_control() => String::new(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}

const STYLE: &str = "rect{stroke:#fff;stroke-width:.6}.library{cursor:pointer}.in:hover rect{stroke:#000}\
                     text{pointer-events:none;fill:#111}";

/// A click shows one library alone, the next one all again. Places within the library are stretched to the whole picture.
const SCRIPT: &str = r#"
(function () {
  var svg = document.documentElement, said = document.getElementById('said'), hint = said.textContent;
  var W = 1200, H = 800, HEAD = 44, open = null;
  var groups = Array.from(svg.querySelectorAll('.library'));
  groups.forEach(function (g) {
    g.cells = Array.from(g.children).map(function (c) {
      var r = c.querySelector('rect'), n = function (k) { return parseFloat(r.getAttribute(k)); };
      return { rect: r, text: c.querySelector('text'), x: n('x'), y: n('y'), w: n('width'), h: n('height') };
    });
    g.addEventListener('click', function () { open = open ? null : g; show(); });
  });
  function place(c, x, y, w, h) {
    c.rect.setAttribute('x', x); c.rect.setAttribute('y', y);
    c.rect.setAttribute('width', w); c.rect.setAttribute('height', h);
    c.text.setAttribute('x', x + 3); c.text.setAttribute('y', y + 12);
    var room = h < 14 ? 0 : Math.floor((w - 6) / 7);
    c.text.textContent = room < 3 ? '' : c.text.getAttribute('data-name').slice(0, room);
  }
  function show() {
    groups.forEach(function (g) {
      g.style.display = open && g !== open ? 'none' : '';
      var o = g.cells[0], label = g.cells.length > 1 ? g.cells[1].y - o.y : 0;
      g.cells.forEach(function (c, i) {
        if (g !== open) { place(c, c.x, c.y, c.w, c.h); return; }
        if (i === 0) { place(c, 0, HEAD, W, H); return; }
        var top = HEAD + 16, s = W / o.w, t = (H - 16) / (o.h - label);
        place(c, (c.x - o.x) * s, top + (c.y - o.y - label) * t, c.w * s, c.h * t);
      });
    });
    said.textContent = open ? open.querySelector('title').textContent + '; click to zoom out' : hint;
  }
}());
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_whole_with_their_shares_and_do_not_overlap() {
        let whole = Rect { x: 0.0, y: 0.0, width: 600.0, height: 400.0 };
        let areas = [6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0];
        let parts = squarify(&areas, whole);
        for (part, area) in parts.iter().zip(areas) {
            assert!((part.width * part.height - area * 10_000.0).abs() < 1e-6, "{part:?}");
            assert!(part.x >= -1e-9 && part.x + part.width <= 600.0 + 1e-6);
            assert!(part.width / part.height < 4.0 && part.height / part.width < 4.0, "{part:?}");
        }
        for (n, one) in parts.iter().enumerate() {
            for other in &parts[n + 1..] {
                let apart = one.x + one.width <= other.x + 1e-6
                    || other.x + other.width <= one.x + 1e-6
                    || one.y + one.height <= other.y + 1e-6
                    || other.y + other.height <= one.y + 1e-6;
                assert!(apart, "{one:?} {other:?}");
            }
        }
        assert!(squarify(&[], whole).is_empty());
    }

    #[test]
    fn names_are_cut_to_their_room_and_never_within_an_escape() {
        assert_eq!(fitting("output", 100.0, 20.0), "output");
        assert_eq!(fitting("output", 30.0, 20.0), "out");
        assert_eq!(fitting("output", 100.0, 9.0), "");
        assert_eq!(fitting("ab&lt;T&gt;::x", 6.0 + 7.0 * 4.0, 20.0), "ab");
        assert_eq!(escape("<T as \"X\">&"), "&lt;T as &quot;X&quot;&gt;&amp;");
    }
}
