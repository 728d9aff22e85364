//! Tests that compare the documents with the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::root;

/// Every Rust source of the workspace, by its path from the root.
fn sources() -> BTreeMap<String, String> {
    fn visit(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    visit(&path, found);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root()).unwrap().map(|entry| entry.unwrap()) {
        // Every package has a folder of its own.
        if entry.path().join("Cargo.toml").is_file() {
            visit(&entry.path(), &mut found);
        }
    }
    found
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// A source without its comments.
fn code(source: &str) -> String {
    let without = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    source.lines().map(without).collect()
}

/// `unsafe` blocks, and other uses of the word, comments aside.
fn count(source: &str) -> (usize, usize) {
    let code = code(source);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut blocks, mut others) = (0, 0);
    for (at, found) in code.match_indices("unsafe") {
        let rest = &code[at + found.len()..];
        if code[..at].ends_with(word) || rest.starts_with(word) {
            continue;
        }
        if rest.trim_start().starts_with('{') { blocks += 1 } else { others += 1 }
    }
    (blocks, others)
}

#[test]
fn the_inventory_of_unsafe_is_complete() {
    let text = document("safety.md");
    let mut listed = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let numbers = (cells[2].parse().unwrap(), cells[3].parse().unwrap());
        assert!(!cells[4].is_empty(), "{line}");
        assert!(
            listed.insert(cells[1].trim_matches('`').to_owned(), numbers).is_none(),
            "twice: {line}"
        );
    }
    let found: BTreeMap<String, (usize, usize)> = sources()
        .iter()
        // This file has the word in its search strings.
        .filter(|(name, _)| *name != "xtask/src/docs.rs")
        .map(|(name, source)| (name.clone(), count(source)))
        .filter(|(_, count)| *count != (0, 0))
        .collect();
    let differ: BTreeSet<_> = listed
        .keys()
        .chain(found.keys())
        .filter(|name| listed.get(*name) != found.get(*name))
        .collect();
    let told: Vec<_> = differ
        .iter()
        .map(|name| format!("{name}: listed {:?}, found {:?}", listed.get(*name), found.get(*name)))
        .collect();
    assert!(told.is_empty(), "docs/safety.md:\n{}", told.join("\n"));
    assert!(found.len() > 20);
}

#[test]
fn unsafe_is_counted() {
    assert_eq!(
        count(
            "unsafe { x } // unsafe {\nunsafe fn f() {}\nunsafe\n{ }\nlet unsafety = not_unsafe;"
        ),
        (2, 1)
    );
    assert_eq!(count("#[unsafe(no_mangle)] unsafe impl Send for X {}"), (0, 2));
}

/// Comments and prose end at column 100: rustfmt's own width, for what it does not format. Tables,
/// links and code in documents are exempt, and what programs write.
#[test]
fn comments_and_prose_end_at_column_100() {
    const WIDTH: usize = 100;
    let mut long = Vec::new();
    for (name, source) in sources() {
        for (number, line) in source.lines().enumerate() {
            let text = line.trim_start();
            let is_table = text.trim_start_matches(['/', '!', ' ']).starts_with('|');
            if text.starts_with("//") && !is_table && line.chars().count() > WIDTH {
                long.push(format!("{name}:{}", number + 1));
            }
        }
    }
    let prose = ["docs", "book/text", "."].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    for path in prose.into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let mut is_code = false;
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            is_code ^= line.starts_with("```");
            let is_exempt = is_code || line.starts_with('|') || line.contains("](");
            if !is_exempt && line.chars().count() > WIDTH {
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than {WIDTH} columns:\n{}", long.join("\n"));
}

/// Each test that `docs/reliability.md` names in its last column, as `file::name`, exists: every
/// part of the name is in the source.
#[test]
fn tests_named_in_the_documents_exist() {
    let sources = sources();
    let all: String = sources.values().map(String::as_str).collect();
    let text = document("reliability.md");
    let mut named = 0;
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let Some(last) = line.trim_end_matches('|').rsplit('|').next() else { continue };
        for name in last.split('`').skip(1).step_by(2).filter(|name| !name.contains(' ')) {
            for part in name.trim_end_matches("::*").split("::").filter(|part| !part.is_empty()) {
                // `allocation_1_fails` to `_5_` is one name.
                let exists = part.len() <= 3 || all.contains(part);
                assert!(
                    exists,
                    "docs/reliability.md names {name}, and \"{part}\" stands nowhere in the source"
                );
            }
            named += 1;
        }
    }
    assert!(named > 40, "{named} tests are named");
}

/// The parts of a line between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A text's rows of tables, and its paragraphs as one line each.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        let row = line.starts_with('|');
        if row || line.trim().is_empty() || line.starts_with("- ") {
            blocks.push(String::new());
        }
        if let Some(block) = blocks.last_mut() {
            *block += line;
            block.push(' ');
        }
        if row {
            blocks.push(String::new());
        }
    }
    blocks
}

/// `docs/architecture.md` and `docs/decisions.md`: each path exists, and each name stands in a file
/// that the same row or paragraph names.
#[test]
fn the_architecture_is_that_of_the_source() {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut paths, mut names) = (0, 0);
    for (document, block) in ["architecture.md", "decisions.md"]
        .iter()
        .flat_map(|name| blocks(&document(name)).into_iter().map(move |block| (name, block)))
    {
        let (files, others): (Vec<_>, Vec<_>) =
            quoted(&block).partition(|name| name.contains('/') && !name.contains(' '));
        let mut sources = String::new();
        for file in files {
            let path = root().join(file);
            assert!(path.exists(), "docs/{document} names {file}, which does not exist");
            sources += &fs::read_to_string(path).unwrap_or_default();
            paths += 1;
        }
        if sources.is_empty() {
            continue;
        }
        // Options, commands and packages are no names in a source.
        let named = |name: &&str| {
            !name.contains('-') && !name.starts_with("cargo ") && !root().join(name).is_dir()
        };
        for name in others.into_iter().filter(named) {
            // `Type::function`: the last part, wherever its type's block begins.
            let last = name.rsplit("::").next().unwrap_or_default().trim_end_matches('!');
            let stands = sources.split(|c| !word(c)).any(|found| found == last);
            assert!(
                stands,
                "docs/{document} names {name} beside files that do not have it: {block}"
            );
            names += 1;
        }
    }
    assert!(paths > 150 && names > 150, "{paths} paths and {names} names");
}

/// "Where to add what" in `docs/architecture.md`: no other product file names a preset, a border, a
/// pixel type or a variant that was added before.
#[test]
fn the_files_to_change_are_all_listed() {
    const ADDED: [(&str, &[&str]); 4] = [
        ("**A preset**", &["emboss"]),
        ("**A border**", &["Reflect", "REFLECT", "reflect"]),
        ("**A pixel type**", &["F16"]),
        ("**A variant**", &["DirectShared", "DIRECT_SHARED", "direct_shared"]),
    ];
    const PRODUCT: [&str; 4] = ["host/src/", "gpu-kernels/src/", "cli/src/", "python/src/"];
    let text = document("architecture.md");
    let sources = sources();
    for (heading, names) in ADDED {
        let (_, rest) = text.split_once(heading).unwrap();
        let table = rest.lines().skip_while(|line| !line.starts_with('|'));
        let table: Vec<_> = table.take_while(|line| line.starts_with('|')).collect();
        let listed: Vec<_> = table
            .iter()
            .flat_map(|row| quoted(row.split(" | ").next().unwrap_or_default()))
            .collect();
        let mut found = 0;
        for (file, source) in &sources {
            if !PRODUCT.iter().any(|folder| file.starts_with(folder)) || file.ends_with("tests.rs")
            {
                continue;
            }
            let code = code(source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default());
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.any(|word| names.contains(&word)) {
                let is_listed =
                    |path: &&str| *path == file || path.ends_with('/') && file.starts_with(*path);
                assert!(listed.iter().any(is_listed), "{heading} does not list {file}");
                found += 1;
            }
        }
        assert!(found >= 2, "{heading} is found in {found} files");
    }
}

/// Each path between backticks that begins with a folder of the repository exists, in documents and
/// in comments.
#[test]
fn paths_named_anywhere_exist() {
    let mut texts: Vec<(String, String)> = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "cli/README.md",
        "fuzz/README.md",
        "rust-cuda/README.md",
    ]
    .map(|name| (name.to_owned(), fs::read_to_string(root().join(name)).unwrap()))
    .into();
    for folder in ["docs", "docs/log", "book/text"] {
        for entry in fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap()) {
            let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
            if name.ends_with(".md") {
                let text = fs::read_to_string(root().join(&name)).unwrap();
                texts.push((name, text));
            }
        }
    }
    for (name, source) in sources() {
        let comments =
            source.lines().map(|line| line.split_once("//").map_or("", |(_, comment)| comment));
        texts.push((name, comments.collect::<Vec<_>>().join("\n")));
    }
    let mut missing = Vec::new();
    let mut named = 0;
    for (name, text) in &texts {
        for path in
            text.lines().flat_map(quoted).filter(|path| !path.contains(['{', '*', ' ', '$']))
        {
            let Some((first, rest)) = path.split_once('/') else { continue };
            if first.is_empty()
                || !root().join(first).join("Cargo.toml").is_file() && first != "docs"
            {
                continue;
            }
            named += 1;
            if !rest.starts_with("target") && !root().join(path).exists() {
                missing.push(format!("{name} names {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "paths that do not exist:\n{}", missing.join("\n"));
    assert!(named > 100, "{named} paths are named");
}
