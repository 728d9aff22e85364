//! Performance directives: PTX has them in an entry's head, but Rust has no attribute for them.
//!
//! A kernel states them in a comment of inline assembly, `//@ .maxntid 512, 1, 1`. This module
//! moves each to the head of its entry.

/// The mark of a directive.
const MARK: &str = "//@";

/// Returns the module with each directive in its entry's head.
pub(crate) fn hoist(ptx: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    // The start of the current entry's body.
    let mut body = None;
    let mut heading = false;
    for line in ptx.lines() {
        let text = line.trim();
        if let Some(directive) = text.strip_prefix(MARK) {
            if let Some(at) = body
                && !lines[..at].ends_with(&[directive.trim()])
            {
                lines.insert(at, directive.trim());
                body = Some(at + 1);
            }
            continue;
        }
        if text.split_whitespace().any(|word| word == ".entry" || word == ".func") {
            (heading, body) = (true, None);
        }
        if heading && text.ends_with('{') {
            (heading, body) = (false, Some(lines.len()));
        }
        lines.push(line);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_moves_to_its_own_entry() {
        let module = ".visible .entry first(\n\t.param .b64 a\n)\n{\n\t{\n\t// begin inline asm\n\t//@ .maxnreg 64\n\
                      \t// end inline asm\n\t//@ .maxnreg 64\n\t}\n\tret;\n}\n.visible .entry second(\n)\n{\n\tret;\n}\n";
        let expected = ".visible .entry first(\n\t.param .b64 a\n)\n.maxnreg 64\n{\n\t{\n\t// begin inline asm\n\
                        \t// end inline asm\n\t}\n\tret;\n}\n.visible .entry second(\n)\n{\n\tret;\n}\n";
        assert_eq!(hoist(module), expected);
    }
}
