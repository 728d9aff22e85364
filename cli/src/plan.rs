//! `apron plan`: which variant would run, how long it should take, and why the others would not.

use apron::{Candidate, Plan};

use crate::args::PlanArgs;
use crate::failure::Result;
use crate::output::print;

pub(crate) fn run(args: &PlanArgs) -> Result {
    let filter = args.choice.filter()?;
    let plan = Plan::builder(&filter).device(args.device).autotune(args.autotune).build()?;
    let chosen = plan.variant_for(args.size)?;
    let (place, candidates) = match args.h200 {
        true => ("an H200".to_owned(), plan.candidates_on_h200(args.size)),
        false => (plan.device().to_string(), plan.candidates(args.size)),
    };
    let chosen = if args.h200 { candidates[0].variant } else { chosen };
    let product =
        if filter.is_separable() { "the product of a row and a column" } else { "no product of a row and a column" };
    print(|out| {
        writeln!(out, "{}x{} taps, {product}; {} on {place}", filter.cols(), filter.rows(), args.size)?;
        candidates
            .iter()
            .try_for_each(|candidate| writeln!(out, "  {}", line(candidate, chosen == candidate.variant, args)))
    })
}

fn line(candidate: &Candidate, chosen: bool, args: &PlanArgs) -> String {
    let verdict = match (&candidate.declined, candidate.predicted) {
        (Some(reason), _) => format!("{:>12}  {reason}", "-"),
        (None, None) => format!("{:>12}", "unknown"),
        (None, Some(time)) if time.as_secs_f64() < 0.01 => format!("{:>9.1} us", time.as_secs_f64() * 1e6),
        (None, Some(time)) => format!("{:>9.1} ms", time.as_secs_f64() * 1e3),
    };
    let reason = match (chosen, args.autotune) {
        (false, _) => "",
        (true, false) => "  <- chosen: the shortest time",
        (true, true) => "  <- chosen: measured here, the fastest",
    };
    format!("{:<16} {verdict}{reason}", candidate.variant.name())
}
