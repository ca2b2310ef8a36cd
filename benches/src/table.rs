//! Text tables that are printed line by line, as results arrive, and fit the terminal.

use std::io::{self, Write};

use anstyle::Style;

use crate::report::{DIM, HEAD};

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    head: String,
    left: bool,
    width: usize,
    rank: u8,
}

impl Column {
    /// The rank of a column that is always shown.
    pub const ALWAYS: u8 = u8::MAX;

    /// For words, at the left. Where there is not room for all columns, those of the lowest rank are left out.
    pub fn words(head: impl Into<String>, rank: u8) -> Self {
        let head = head.into();
        Self { left: true, width: head.len(), head, rank }
    }

    /// For numbers of up to `width` characters, at the right.
    pub fn number(head: impl Into<String>, width: usize, rank: u8) -> Self {
        let head = head.into();
        Self { left: false, width: width.max(head.len()), head, rank }
    }

    /// Wide enough for all of these.
    pub fn holding<T: AsRef<str>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        let width = texts.into_iter().map(|t| t.as_ref().chars().count()).fold(self.width, usize::max);
        Self { width, ..self }
    }
}

/// A cell: its text, and how it looks.
#[derive(Clone, Debug)]
pub struct Cell(String, Style);

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self(text.into(), Style::new())
    }
}

impl Cell {
    /// In a style.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self(text.into(), style)
    }
}

/// The columns that are shown.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    shown: Vec<bool>,
    room: Option<usize>,
}

/// Characters between columns.
const GAP: usize = 2;

impl Table {
    /// A table for standard output.
    pub fn new(columns: Vec<Column>) -> Self {
        Self::within(room(), columns)
    }

    /// A table of at most so many characters in a line; without a number there is room for all.
    fn within(room: Option<usize>, columns: Vec<Column>) -> Self {
        let mut shown = vec![true; columns.len()];
        let width = |shown: &[bool]| {
            let widths = columns.iter().zip(shown).filter(|(_, &s)| s).map(|(c, _)| c.width + GAP);
            widths.sum::<usize>() - GAP
        };
        while room.is_some_and(|room| width(&shown) > room) {
            let droppable = (0..columns.len()).filter(|&i| shown[i] && columns[i].rank < Column::ALWAYS);
            let Some(least) = droppable.min_by_key(|&i| columns[i].rank) else { break };
            shown[least] = false;
        }
        Self { columns, shown, room }
    }

    /// The line of headings.
    pub fn head(&self, out: &mut impl Write) -> io::Result<()> {
        self.row(out, self.columns.iter().map(|c| Cell::styled(&*c.head, HEAD)).collect())
    }

    /// One line, with a cell for each column.
    pub fn row(&self, out: &mut impl Write, cells: Vec<Cell>) -> io::Result<()> {
        let mut spaces = 0;
        let cells = self.columns.iter().zip(cells).zip(&self.shown).filter(|(_, &shown)| shown);
        for ((column, Cell(text, style)), _) in cells {
            let free = column.width.saturating_sub(text.chars().count());
            let (before, after) = if column.left { (0, free) } else { (free, 0) };
            // Spaces are written when something follows them.
            spaces += before;
            if !text.is_empty() {
                write!(out, "{:1$}{style}{text}{style:#}", "", spaces)?;
                spaces = 0;
            }
            spaces += after + GAP;
        }
        writeln!(out)
    }

    /// Says which columns there was no room for.
    pub fn foot(&self, out: &mut impl Write) -> io::Result<()> {
        let hidden: Vec<&str> = self
            .columns
            .iter()
            .zip(&self.shown)
            .filter(|(_, &shown)| !shown)
            .map(|(c, _)| &*c.head)
            .collect();
        if hidden.is_empty() {
            return Ok(());
        }
        let text = format!("no room for: {}; --json has everything", hidden.join(", "));
        writeln!(out, "{DIM}{}{DIM:#}", textwrap::fill(&text, self.room.unwrap_or(usize::MAX)))
    }
}

/// Characters in a line of standard output: those of the terminal, or as many as `COLUMNS` says. A file or
/// another program takes lines of any length.
pub fn room() -> Option<usize> {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((width, _)) => Some(width.0.into()),
        None => std::env::var("COLUMNS").ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(room: Option<usize>) -> Vec<String> {
        let columns = vec![
            Column::words("operator", Column::ALWAYS).holding(["vec_dot", "qgemv_squeezellm"]),
            Column::words("type", 2).holding(["iq2_xxs/bf16"]),
            Column::number("time", 9, 3),
            Column::number("max_err", 5, 1),
            Column::number("%", 5, Column::ALWAYS),
        ];
        let table = Table::within(room, columns);
        let mut out = Vec::new();
        table.head(&mut out).unwrap();
        for (op, of) in [("vec_dot", "f32"), ("qgemv_squeezellm", "iq2_xxs/bf16")] {
            let cells = [op, of, "12.30 us", "3e-7", "99.1"].map(Cell::from);
            table.row(&mut out, cells.into()).unwrap();
        }
        table.foot(&mut out).unwrap();
        let plain = anstream::adapter::strip_bytes(&out).into_vec();
        String::from_utf8(plain).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn long_names_shift_nothing() {
        assert_eq!(
            lines(None),
            [
                "operator          type               time  max_err      %",
                "vec_dot           f32            12.30 us     3e-7   99.1",
                "qgemv_squeezellm  iq2_xxs/bf16   12.30 us     3e-7   99.1",
            ]
        );
    }

    #[test]
    fn columns_give_way_in_their_order() {
        assert_eq!(lines(Some(57)), lines(None));
        let narrow = lines(Some(56));
        assert_eq!(narrow[2], "qgemv_squeezellm  iq2_xxs/bf16   12.30 us   99.1");
        assert_eq!(narrow[3], "no room for: max_err; --json has everything");
        assert_eq!(lines(Some(40))[2], "qgemv_squeezellm   12.30 us   99.1");
        assert_eq!(lines(Some(30))[2], "qgemv_squeezellm   99.1");
        // What is left is shown whatever happens.
        assert_eq!(lines(Some(3))[2], "qgemv_squeezellm   99.1");
    }
}
