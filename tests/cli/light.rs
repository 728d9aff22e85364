//! Linear light: `scipy/light.py` compares results with SciPy's sums of light in f64.

use std::ffi::OsString;

use libtest_mimic::Trial;

use crate::scipy;

const SCRIPT: &str = include_str!("../scipy/light.py");

pub(crate) fn trials(python: &Result<OsString, String>) -> Vec<Trial> {
    let judge = python.clone();
    vec![
        Trial::test("light::scipy", move || scipy::judged("light::scipy", SCRIPT, judge?))
            .with_ignored_flag(python.is_err()),
    ]
}
