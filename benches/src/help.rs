//! The text below the options of `--help`.

use textwrap::{fill, Options};

/// No line is longer, however wide the terminal.
pub const WIDEST: usize = 110;

/// As wide as the help is shown. A line that is too long goes on below its beginning; below its second column,
/// if it has two.
pub fn wrapped(text: &str) -> String {
    let width = crate::table::room().map_or(WIDEST, |room| room.min(WIDEST));
    let lines: Vec<String> = text.lines().map(|line| wrap(line, width)).collect();
    lines.join("\n")
}

fn wrap(line: &str, width: usize) -> String {
    let indent = line.len() - line.trim_start().len();
    let columns = line[indent..].find("  ").map(|end| {
        let gap = &line[indent + end..];
        indent + end + gap.len() - gap.trim_start().len()
    });
    // Commands, and whatever else is indented, go on a little further in.
    let below = columns.unwrap_or(if indent > 0 { indent + 4 } else { 0 });
    let (first, rest) = line.split_at(columns.unwrap_or(indent));
    let below = " ".repeat(below.min(width * 2 / 3));
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(&below)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    fill(rest, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_below_their_beginning() {
        assert_eq!(wrap("short", 20), "short");
        assert_eq!(wrap("", 20), "");
        assert_eq!(wrap("words without an indent", 12), "words\nwithout an\nindent");
        assert_eq!(wrap("  gllm-bench run --op gemm", 20), "  gllm-bench run\n      --op gemm");
        assert_eq!(
            wrap("  ns    nanoseconds per call, median", 24),
            "  ns    nanoseconds per\n        call, median"
        );
    }
}
