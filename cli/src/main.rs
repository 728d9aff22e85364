//! The command-line tool; `apron --help` says what it does.

fn main() -> std::process::ExitCode {
    apron_cli::main()
}
