// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The menu on a screen: choices and libraries side by side, below them the row's details.

use super::state::{Key, Menu, Pane};
use crate::kernel::choices::CHOICES;
use ratatui::{
    Frame,
    crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Paragraph, Row, Table, TableState, Wrap},
};

/// Least size that shows something.
const MIN_COLUMNS: u16 = 60;
const MIN_ROWS: u16 = 16;
const KEYS: &str =
    "arrows: move, change · Tab: other pane · d: default · b: build, for sizes · s: write · q: leave";

/// The key of an event, if it is one of the menu's.
pub fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Key::Quit,
        _ if control => return None,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Last,
        KeyCode::Right | KeyCode::Enter | KeyCode::Char(' ' | 'l') => Key::Next,
        KeyCode::Left | KeyCode::Char('h') => Key::Previous,
        KeyCode::Tab | KeyCode::BackTab => Key::OtherPane,
        KeyCode::Char('d') => Key::Reset,
        KeyCode::Char('b') => Key::Build,
        KeyCode::Char('s') => Key::Save,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        _ => return None,
    })
}

pub fn draw(frame: &mut Frame, menu: &Menu) {
    let area = frame.area();
    if area.width < MIN_COLUMNS || area.height < MIN_ROWS {
        let text =
            format!("the menu needs a terminal of {MIN_COLUMNS} columns and {MIN_ROWS} rows; q: leave");
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let details = menu.details();
    let lines: Vec<Line> = details.into_iter().map(Line::from).collect();
    let details = Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered());
    // Words that do not fit into a line take more of them.
    let inside = usize::from(area.width - 2);
    let rows: usize = details_rows(&menu.details(), inside);
    let height = u16::try_from(rows + 2).unwrap_or(u16::MAX).clamp(6, area.height / 2);
    let [head, middle, below, message, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(height),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let changed = if menu.is_changed() { ", changed" } else { "" };
    let stale = if menu.is_stale() { "; sizes are of other choices: b builds these" } else { "" };
    let title = format!("{}: {} bytes{stale} ({}{changed})", menu.title, menu.built.total, menu.file);
    frame.render_widget(Paragraph::new(title).style(Style::new().add_modifier(Modifier::BOLD)), head);
    let [left, right] = Layout::horizontal([Constraint::Length(40), Constraint::Min(20)]).areas(middle);
    draw_choices(frame, menu, left);
    draw_libraries(frame, menu, right);
    frame.render_widget(details, below);
    frame.render_widget(Paragraph::new(menu.message.as_str()), message);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

/// Rows of these lines where a row has so many columns, broken between words.
fn details_rows(lines: &[String], columns: usize) -> usize {
    let rows = |line: &String| {
        let mut rows = 1;
        let mut at = 0;
        for word in line.split_inclusive(' ') {
            let width = word.trim_end().chars().count();
            if at > 0 && at + width > columns {
                rows += 1;
                at = 0;
            }
            at += word.chars().count();
        }
        rows
    };
    lines.iter().map(rows).sum()
}

fn draw_choices(frame: &mut Frame, menu: &Menu, area: Rect) {
    let rows = CHOICES.iter().map(|choice| {
        let mark = if menu.conflicts_of(choice.key).is_empty() { " " } else { "!" };
        let value = menu.value(choice).value;
        Row::new([format!("{mark}{}", choice.key), value.to_string(), menu.chosen_by(choice)])
    });
    let widths = [Constraint::Length(11), Constraint::Length(11), Constraint::Min(10)];
    table(frame, menu, Pane::Choices, Table::new(rows, widths), "choices", area);
}

fn draw_libraries(frame: &mut Frame, menu: &Menu, area: Rect) {
    let rows = menu.built.libraries.iter().map(|library| {
        Row::new([format!("{:>8}", library.bytes), library.name.clone(), menu.reason(library)])
    });
    let widths = [Constraint::Length(8), Constraint::Length(18), Constraint::Min(10)];
    table(frame, menu, Pane::Libraries, Table::new(rows, widths), "libraries", area);
}

fn table(frame: &mut Frame, menu: &Menu, pane: Pane, table: Table, title: &str, area: Rect) {
    let is_open = menu.pane == pane;
    let row = if is_open { Modifier::REVERSED } else { Modifier::DIM };
    let block = Block::bordered().title(title.to_string());
    let block = if is_open { block.border_style(Style::new().add_modifier(Modifier::BOLD)) } else { block };
    let table = table.block(block).row_highlight_style(Style::new().add_modifier(row));
    let mut state = TableState::new().with_selected(Some(menu.at[pane as usize]));
    frame.render_stateful_widget(table, area, &mut state);
}

#[cfg(test)]
mod tests {
    use super::{super::state::tests::example, *};
    use ratatui::{Terminal, backend::TestBackend, crossterm::event::KeyEvent};

    fn shown(menu: &Menu, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, menu)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn choices_libraries_details_and_keys_are_on_the_screen() {
        let mut menu = example(&[], Vec::new());
        let screen = shown(&menu, 100, 30);
        for text in [
            "redis: 277000 bytes",
            "alloc",
            "tlsf",
            "default",
            "230000 tcpip",
            "every kernel",
            "* tlsf",
            "s: write",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        menu.press(Key::Next);
        let screen = shown(&menu, 100, 30);
        for text in ["buddy", "you", "sizes are of other choices", "changed"] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        // What is needed is shown whole.
        assert_eq!(details_rows(&["aa bb cc".into(), "d".into()], 5), 3);
        // Whatever the terminal's size, and wherever the row is.
        for (columns, rows) in [(80, 24), (60, 16), (200, 60), (30, 8), (1, 1)] {
            for key in [Key::Last, Key::OtherPane, Key::Last, Key::OtherPane] {
                menu.press(key);
                shown(&menu, columns, rows);
            }
        }
        assert!(shown(&menu, 40, 10).contains("needs a terminal"));
    }

    #[test]
    fn keys_of_a_terminal_are_the_menus() {
        let press = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(press(KeyCode::Char('s'), KeyModifiers::CONTROL), None);
        assert_eq!(press(KeyCode::Char('s'), KeyModifiers::NONE), Some(Key::Save));
        assert_eq!(press(KeyCode::Char('x'), KeyModifiers::NONE), None);
        assert_eq!(key(&Event::Resize(1, 1)), None);
    }
}
