//! `container-run`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(container_run::run(std::env::args_os().collect()))
}
