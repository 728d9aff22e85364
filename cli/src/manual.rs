//! Manual pages and shell completions, from the definition of the command line.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::output::print;

/// Writes the completions for a shell.
pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    // The generator panics if its writer fails, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "apron", &mut text);
    out.write_all(&text)
}

/// Prints the manual page of a command, or of the whole tool.
pub(crate) fn page(name: Option<&str>) -> Result {
    let mut tool = Args::command();
    // Adds subcommands' full names and the options that all commands have.
    tool.build();
    let command = match name {
        None => tool,
        Some(name) => {
            let known: Vec<_> =
                tool.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            let found = tool.find_subcommand(name).cloned();
            found.ok_or_else(|| {
                Failure::usage(format!(
                    "no command is called {name}; the commands are {}",
                    known.join(", ")
                ))
            })?
        }
    };
    let source = concat!("apron ", env!("CARGO_PKG_VERSION"));
    print(|out| Man::new(command).source(source).render(out))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_completes_every_option() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            completions(*shell, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            for word in ["filter", "skip-existing", "gpu-memory"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }
}
