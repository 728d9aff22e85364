//! Every link of the book and of the documents leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pictures;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn markdown(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The targets of links and pictures: `](target)`.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let after = prose.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// What headings are called in addresses: lower case, words joined by hyphens.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text)
        .lines()
        .filter_map(|line| line.strip_prefix('#').map(str::to_owned))
        .collect::<Vec<_>>();
    let plain = |heading: &String| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        heading
            .chars()
            .filter_map(|c| {
                if c == ' ' {
                    Some('-')
                } else {
                    (c.is_alphanumeric() || "-_".contains(c)).then_some(c)
                }
            })
            .collect()
    };
    headings.iter().map(plain).collect()
}

/// What is wrong with the links of a file, all of whose targets must lie in `within`.
fn dead(path: &Path, within: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut dead = Vec::new();
    for target in targets(&text) {
        if target.starts_with("https://") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let to = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
        let inside = to.canonicalize().is_ok_and(|to| to.starts_with(within));
        let has_anchor = || anchors(&fs::read_to_string(&to).unwrap_or_default()).contains(anchor);
        if !inside || !anchor.is_empty() && !has_anchor() {
            dead.push(format!("{}: {target}", path.display()));
        }
    }
    dead
}

#[test]
fn links_of_the_book_stay_in_it() {
    let text = root().join("book/text");
    let chapters = markdown(&text);
    let dead: Vec<_> = chapters.iter().flat_map(|path| dead(path, &text)).collect();
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
    assert!(chapters.len() > 8);
}

#[test]
fn links_of_the_documents_lead_to_files() {
    let root = root();
    let named = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "host/README.md",
        "kernel-builder/README.md",
    ];
    let mut documents: Vec<_> = named.iter().map(|name| root.join(name)).collect();
    documents.push(root.join("cli/README.md"));
    for folder in ["docs", "docs/log"] {
        documents.extend(markdown(&root.join(folder)));
    }
    let dead: Vec<_> = documents.iter().flat_map(|path| dead(path, &root)).collect();
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

/// A package's page on crates.io has nothing beside it to link to.
#[test]
fn links_of_packages_are_absolute() {
    for package in ["host", "kernel-builder", "cli"] {
        let text = fs::read_to_string(root().join(package).join("README.md")).unwrap();
        // In a crate's documentation, a link to one of its items names the item.
        let relative: Vec<_> = targets(&text)
            .into_iter()
            .filter(|target| !target.starts_with("https://") && !target.starts_with('#'))
            .collect();
        assert!(relative.is_empty(), "{package}/README.md: {relative:?}");
    }
}

/// A chapter takes tables from the documents: `{{#include FILE:ANCHOR}}`, or a whole file.
#[test]
fn what_chapters_include_exists() {
    let text = root().join("book/text");
    let mut tables = 0;
    for chapter in markdown(&text) {
        let chapter = fs::read_to_string(chapter).unwrap();
        for include in chapter.split("{{#include ").skip(1).filter_map(|rest| rest.split_once("}}"))
        {
            let (file, anchor) = include.0.split_once(':').unwrap_or((include.0, ""));
            let file = fs::read_to_string(text.join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            if !anchor.is_empty() {
                let inside = file.split_once(&format!("ANCHOR: {anchor} ")).expect(anchor).1;
                let (inside, _) =
                    inside.split_once(&format!("ANCHOR_END: {anchor} ")).expect(anchor);
                assert!(inside.contains("| --- |"), "{anchor} holds no table");
                tables += 1;
            }
        }
    }
    assert_eq!(tables, 2);
}

#[test]
fn the_summary_has_every_chapter() {
    let text = root().join("book/text");
    let summary = fs::read_to_string(text.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<_> = targets(&summary).into_iter().collect();
    let files = markdown(&text)
        .into_iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let chapters: BTreeSet<_> = files.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(listed, chapters);
    // Each is compiled: its code is tested.
    for chapter in chapters {
        assert!(
            include_str!("lib.rs").contains(&format!("../text/{chapter}")),
            "{chapter} is not in lib.rs"
        );
    }
}

/// The pictures are what the program draws now.
#[test]
fn the_pictures_are_up_to_date() {
    for (name, svg) in pictures::all().unwrap() {
        let found = fs::read_to_string(root().join("book/text/pictures").join(name)).unwrap();
        assert!(found == svg, "{name} is another one; draw it with cargo run -p apron-book");
    }
}

#[test]
fn a_dead_link_is_found() {
    let folder = std::env::temp_dir().join(format!("apron-links-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    let page = folder.join("page.md");
    fs::write(&page, "# Two Words: here\n[a](page.md#two-words-here) [b](gone.md) [c](#none)\n```\n[d](e.md)\n```\n")
        .unwrap();
    let found = dead(&page, &folder);
    fs::remove_dir_all(&folder).unwrap();
    assert!(
        found.len() == 2 && found[0].ends_with("gone.md") && found[1].ends_with("#none"),
        "{found:?}"
    );
}
