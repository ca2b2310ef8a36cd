//! The imports between the files of a crate, for tests of its structure.
//!
//! The sources are read as text. An arrow from one file to another is a path in code that leads there: in `use`, or in the
//! middle of an expression; a name that a module re-exports leads to the file that defines it. The use of a macro is an arrow
//! to the file that defines the macro. Comments are no code, and neither are `mod` and `pub use`, which only give names.
//! Modules with tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// For each pair of files of which the first imports from the second, the paths in its code that lead there.
pub type Arrows = BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>;

/// A module: its file, and what is declared in it.
#[derive(Default)]
struct Module {
    file: PathBuf,
    children: BTreeMap<String, Vec<String>>,
    /// Names that lead elsewhere: the path they stand for.
    names: BTreeMap<String, Vec<String>>,
    /// Modules all of whose names are names here.
    globs: Vec<Vec<String>>,
    defined: BTreeSet<String>,
    /// Paths in code, `use` among them.
    paths: Vec<Vec<String>>,
}

#[derive(Default)]
struct Source {
    modules: BTreeMap<Vec<String>, Module>,
    /// The files in which macros of a name are defined.
    macros: BTreeMap<String, Vec<PathBuf>>,
}

/// Words, `::`, and other characters, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let b: Vec<char> = text.chars().collect();
    let (mut out, mut i) = (vec![], 0);
    let at = |i: usize| b.get(i).copied().unwrap_or(' ');
    while i < b.len() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        match b[i] {
            '/' if at(i + 1) == '/' => {
                while i < b.len() && b[i] != '\n' {
                    i += 1
                }
            }
            '"' => {
                i += 1;
                while i < b.len() && b[i] != '"' {
                    i += if b[i] == '\\' { 2 } else { 1 };
                }
                i += 1;
                out.push("\"\"".into());
            }
            '\'' if at(i + 1) == '\\' => {
                i += 3;
                while at(i) != '\'' {
                    i += 1
                }
                i += 1
            }
            '\'' if at(i + 2) == '\'' => i += 3,
            ':' if at(i + 1) == ':' => {
                out.push("::".into());
                i += 2
            }
            c if word(c) => {
                let from = i;
                while i < b.len() && word(b[i]) {
                    i += 1
                }
                out.push(b[from..i].iter().collect());
            }
            c => {
                if !c.is_whitespace() {
                    out.push(c.to_string())
                }
                i += 1
            }
        }
    }
    out
}

/// The paths of the `use` tree at `t[*i]`, each with the name it gets.
fn tree(t: &[String], i: &mut usize, before: &[String], out: &mut Vec<(Vec<String>, String)>) {
    let mut path = before.to_vec();
    loop {
        match t[*i].as_str() {
            "{" => {
                *i += 1;
                while t[*i] != "}" {
                    tree(t, i, &path, out);
                    if t[*i] == "," {
                        *i += 1
                    }
                }
                *i += 1;
                return;
            }
            "::" => {}
            "self" if !path.is_empty() => {}
            word => path.push(word.into()),
        }
        *i += 1;
        if t[*i] != "::" && t[*i - 1] != "::" {
            break;
        }
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if t[*i] == "as" {
        name = t[*i + 1].clone();
        *i += 2;
    }
    out.push((path, name));
}

/// The brace that closes the one at `t[open]`.
fn matching(t: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (i, word) in t.iter().enumerate().skip(open) {
        match word.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return i,
            "}" => depth -= 1,
            _ => {}
        }
    }
    t.len()
}

/// Reads the module `path` from its file, and those declared in it.
fn read(root: &Path, path: Vec<String>, file: PathBuf, source: &mut Source) {
    let t =
        tokens(&fs::read_to_string(root.join(&file)).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
    // Modules that are written out where they stand, and the depth of braces at which they end.
    let mut open: Vec<(Vec<String>, usize)> = vec![(path, 0)];
    let (mut depth, mut i) = (0, 0);
    let mut in_files = vec![];
    source.modules.insert(open[0].0.clone(), Module { file: file.clone(), ..Module::default() });
    while i < t.len() {
        let here = open.last().unwrap().0.clone();
        let m = source.modules.get_mut(&here).unwrap();
        let next = |k: usize| t.get(i + k).map_or("", String::as_str);
        match next(0) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if open.last().unwrap().1 == depth && open.len() > 1 {
                    open.pop();
                }
            }
            // `#[cfg(test)]`, perhaps `#[path = ".."]`, then a module.
            "#" if t[i..].iter().map(String::as_str).take(7).eq(["#", "[", "cfg", "(", "test", ")", "]"]) => {
                let mut k = i + 7;
                if t.get(k).is_some_and(|w| w == "#") {
                    k += t[k..].iter().position(|w| w == "]").map_or(0, |end| end + 1);
                }
                if t.get(k).is_some_and(|w| w == "mod") {
                    i = if t[k + 2] == "{" { matching(&t, k + 2) } else { k + 2 };
                }
            }
            "mod" if next(2) == ";" || next(2) == "{" => {
                let name = next(1).to_string();
                let child: Vec<_> = here.iter().cloned().chain([name.clone()]).collect();
                if name != "$" {
                    m.children.insert(name.clone(), child.clone());
                    if next(2) == ";" {
                        in_files.push((child, name));
                    } else {
                        source
                            .modules
                            .insert(child.clone(), Module { file: file.clone(), ..Module::default() });
                        open.push((child, depth));
                        depth += 1;
                    }
                    i += 2;
                }
            }
            "use" => {
                let public = i > 0 && (t[i - 1] == "pub" || t[i - 1] == ")");
                i += 1;
                let mut all = vec![];
                tree(&t, &mut i, &[], &mut all);
                for (path, name) in all {
                    if path.last().is_some_and(|l| l == "*") {
                        let of = path[..path.len() - 1].to_vec();
                        // Macros write modules that begin with `use super::*`; where they come to stand is not known here.
                        if !public && of.iter().any(|word| word != "super") {
                            m.paths.push(of.clone())
                        }
                        m.globs.push(of);
                    } else {
                        if !public {
                            m.paths.push(path.clone())
                        }
                        m.names.insert(name, path);
                    }
                }
                continue;
            }
            "struct" | "enum" | "trait" | "fn" | "const" | "static" | "type" | "union" => {
                m.defined.insert(next(1).into());
            }
            "macro_rules" => {
                source.macros.entry(next(2).into()).or_default().push(file.clone());
                i += 2;
            }
            _ if next(1) == "!" && next(2) != "=" => m.paths.push(vec![format!("{}!", next(0))]),
            _ if next(1) == "::" && (i == 0 || t[i - 1] != "::") => {
                let mut path = vec![t[i].clone()];
                while t.get(i + 1).is_some_and(|w| w == "::")
                    && t.get(i + 2).is_some_and(|w| w.chars().all(|c| c.is_alphanumeric() || c == '_'))
                {
                    path.push(t[i + 2].clone());
                    i += 2;
                    if t.get(i + 1).map(String::as_str) != Some("::") {
                        break;
                    }
                }
                m.paths.push(path);
            }
            _ => {}
        }
        i += 1;
    }
    // `a/mod.rs`, `lib.rs`: modules beside it; `a.rs`: modules in `a/`.
    let folder = match file.file_stem().and_then(|s| s.to_str()) {
        Some("mod" | "lib") => file.parent().unwrap().to_path_buf(),
        _ => file.with_extension(""),
    };
    for (child, name) in in_files {
        let flat = folder.join(format!("{name}.rs"));
        let file = if root.join(&flat).exists() { flat } else { folder.join(name).join("mod.rs") };
        read(root, child, file, source);
    }
}

/// The file that a path in a module leads to, if it is one of this crate's.
fn resolve(source: &Source, here: &[String], path: &[String], tries: usize) -> Option<PathBuf> {
    if tries == 0 {
        return None;
    }
    let mut at = here.to_vec();
    let mut rest = path;
    if let [name] = path {
        if let Some(name) = name.strip_suffix('!') {
            // Of several the one that is nearest: their names are known where their folders are.
            let here = &source.modules[here].file;
            let shared =
                |f: &PathBuf| here.components().zip(f.components()).take_while(|(a, b)| a == b).count();
            return source.macros.get(name)?.iter().max_by_key(|f| shared(f)).cloned();
        }
    }
    match rest.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &rest[1..]
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|w| w == "super") {
                at.pop();
                rest = &rest[1..]
            }
        }
        first => {
            let m = &source.modules[&at];
            if !m.children.contains_key(first) {
                let target = m.names.get(first)?;
                if target == path || target.first().is_some_and(|f| f == first) {
                    return None;
                }
                let longer: Vec<_> = target.iter().chain(&rest[1..]).cloned().collect();
                return resolve(source, here, &longer, tries - 1);
            }
        }
    }
    while let Some(first) = rest.first() {
        let m = &source.modules[&at];
        if let Some(child) = m.children.get(first) {
            at = child.clone();
            rest = &rest[1..];
            continue;
        }
        if let Some(target) = m.names.get(first) {
            let longer: Vec<_> = target.iter().chain(&rest[1..]).cloned().collect();
            return resolve(source, &at, &longer, tries - 1);
        }
        if !m.defined.contains(first) {
            for glob in &m.globs {
                let longer: Vec<_> = glob.iter().chain(rest).cloned().collect();
                let to = resolve(source, &at, &longer, tries - 1);
                if let Some(to) = to {
                    let there = source.modules.values().any(|m| m.file == to && m.defined.contains(first));
                    if there {
                        return Some(to);
                    }
                }
            }
        }
        break;
    }
    Some(source.modules[&at].file.clone())
}

/// The arrows between the files below `src`, the folder of a crate's `lib.rs`.
pub fn arrows(src: &Path) -> Arrows {
    let mut source = Source::default();
    read(src, vec![], "lib.rs".into(), &mut source);
    let mut arrows = Arrows::new();
    for (here, m) in &source.modules {
        for path in &m.paths {
            if let Some(to) = resolve(&source, here, path, 9).filter(|to| *to != m.file) {
                arrows.entry((m.file.clone(), to)).or_default().insert(path.join("::"));
            }
        }
    }
    arrows
}

/// The arrows from a floor to one above it, in words. `floors` are listed from the ground up, by folders and files without
/// their ending; the longest name that fits counts.
pub fn upward(arrows: &Arrows, floors: &[&[&str]]) -> Vec<String> {
    let floor = |file: &Path| {
        let stem = file.with_extension("");
        let named = |name: &&&str| stem.starts_with(name);
        let fits = |names: &&[&str]| names.iter().filter(named).map(|name| name.len()).max();
        let best =
            (0..floors.len()).max_by_key(|&i| fits(&floors[i])).filter(|&i| fits(&floors[i]).is_some());
        best.unwrap_or_else(|| panic!("{} is on no floor", file.display()))
    };
    arrows
        .iter()
        .filter(|((from, to), _)| floor(from) < floor(to))
        .map(|((from, to), paths)| format!("{} -> {}: {paths:?}", from.display(), to.display()))
        .collect()
}

/// The sets of files that import each other in a circle.
pub fn circles(arrows: &Arrows) -> Vec<BTreeSet<PathBuf>> {
    let mut next: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        next.entry(from).or_default().push(to);
    }
    let reached = |from: &Path| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(file) = left.pop() {
            left.extend(next.get(file).into_iter().flatten().filter(|to| seen.insert(to.to_path_buf())));
        }
        seen
    };
    let reach: BTreeMap<_, _> = next.keys().map(|&from| (from, reached(from))).collect();
    let in_circle = |a: &Path, b: &Path| reach[a].contains(b) && reach.get(b).is_some_and(|r| r.contains(a));
    let all: BTreeSet<BTreeSet<PathBuf>> = reach
        .keys()
        .map(|&a| reach[a].iter().filter(|b| in_circle(a, b)).cloned().collect())
        .filter(|circle: &BTreeSet<_>| !circle.is_empty())
        .collect();
    all.into_iter().collect()
}
