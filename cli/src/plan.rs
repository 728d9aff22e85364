//! `apron plan`: which variant would run, how long it should take, and why the others would not.

use apron::{Candidate, Plan};

use crate::args::PlanArgs;
use crate::failure::Result;
use crate::output::print;

pub(crate) fn run(args: &PlanArgs) -> Result {
    let filter = args.choice.filter()?;
    let plan = Plan::builder(&filter).device(args.device).autotune(args.autotune).build()?;
    let (source, target) = (args.r#type, args.output_type.unwrap_or(args.r#type));
    let chosen = plan.variant_of(args.size, source, target)?;
    let (place, candidates) = match args.h200 {
        true => ("an H200".to_owned(), plan.candidates_on_h200(args.size, source, target)),
        false => (plan.device().to_string(), plan.candidates_for(args.size, source, target)),
    };
    let chosen = if args.h200 { candidates[0].variant } else { chosen };
    let product =
        if filter.is_separable() { "the product of a row and a column" } else { "no product of a row and a column" };
    print(|out| {
        let types = if source == target { source.to_string() } else { format!("{source} to {target}") };
        writeln!(out, "{}x{} taps, {product}; {} of {types} on {place}", filter.cols(), filter.rows(), args.size)?;
        let shortest = candidates.iter().filter_map(|candidate| candidate.predicted).min();
        candidates.iter().try_for_each(|candidate| {
            let verdict = match (chosen == candidate.variant, args.autotune) {
                (false, _) => "",
                (true, true) => "  <- chosen: measured here, the fastest",
                (true, false) if candidate.predicted == shortest => "  <- chosen: the shortest time",
                (true, false) => "  <- chosen: the least work",
            };
            writeln!(out, "  {}{verdict}", line(candidate))
        })
    })
}

fn line(candidate: &Candidate) -> String {
    let time = match (&candidate.declined, candidate.predicted) {
        (Some(reason), _) => format!("{:>12}  {reason}", "-"),
        (None, None) => format!("{:>12}", "unknown"),
        (None, Some(time)) if time.as_secs_f64() < 0.01 => format!("{:>9.1} us", time.as_secs_f64() * 1e6),
        (None, Some(time)) => format!("{:>9.1} ms", time.as_secs_f64() * 1e3),
    };
    format!("{:<16} {time}", candidate.variant.name())
}
