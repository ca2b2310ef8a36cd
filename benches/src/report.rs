//! Numbers, units and styles of what is printed. Styles are ANSI escapes; the stream drops them where nobody
//! would see colours.

use anstyle::{AnsiColor, Style};

/// Of headings.
pub const HEAD: Style = Style::new().bold();
/// Of what matters less.
pub const DIM: Style = Style::new().dimmed();

/// From fractions of the limit to a colour: green from 90 %, yellow from 60 %.
pub fn rating(efficiency: f64) -> Style {
    let colour = match efficiency {
        e if e >= 0.9 => AnsiColor::Green,
        e if e >= 0.6 => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    Style::new().fg_color(Some(colour.into()))
}

/// Bytes with a binary unit.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Nanoseconds with a unit that leaves three or four digits.
pub fn time(ns: f64) -> String {
    match ns {
        t if t < 1e3 => format!("{t:.1} ns"),
        t if t < 1e6 => format!("{:.2} us", t / 1e3),
        t if t < 1e9 => format!("{:.2} ms", t / 1e6),
        t => format!("{:.2} s", t / 1e9),
    }
}

/// Four significant digits, more or less.
pub fn number(x: f64) -> String {
    match x.abs() {
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 0.01 || a == 0.0 => format!("{x:.2}"),
        _ => format!("{x:.0e}"),
    }
}

/// Storage type; for quantised operators the weight format and the type of the rest.
pub fn types(format: &str, element: &str) -> String {
    if format == element {
        element.to_owned()
    } else {
        format!("{format}/{element}")
    }
}

/// A relative error.
pub fn error(e: f64) -> String {
    if e == 0.0 {
        "exact".to_owned()
    } else {
        format!("{e:.0e}")
    }
}

/// So many threads, in words.
pub fn threads(n: usize) -> String {
    format!("{n} thread{}", if n == 1 { "" } else { "s" })
}

/// Sizes of each dimension.
pub fn dimensions(shape: &[u64]) -> String {
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(48 << 10), "48 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(time(12.34), "12.3 ns");
        assert_eq!(time(2.5e6), "2.50 ms");
        assert_eq!((error(0.0), error(6.1e-8)), ("exact".to_owned(), "6e-8".to_owned()));
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(12345.6), "12346");
    }
}
