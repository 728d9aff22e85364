//! The presets' constructors of the class `Filter`: one for each row of `apron::Filter::PRESETS`.

use std::ffi::{CStr, CString};
use std::fmt::Display;

use apron::{Need, Parameter, Preset};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple, PyType};

use crate::filter::Filter;

/// Adds a static method to the class for each preset.
pub(crate) fn add_to(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let static_method = py.import("builtins")?.getattr("staticmethod")?;
    // Python keeps the texts as long as the process lives.
    let kept = |text: String| -> PyResult<&'static CStr> {
        Ok(Box::leak(CString::new(text)?.into_boxed_c_str()))
    };
    for preset in apron::Filter::PRESETS {
        let (name, doc) = (kept(method(preset))?, kept(documentation(preset))?);
        let call = |arguments: &Bound<'_, PyTuple>, keywords: Option<&Bound<'_, PyDict>>| {
            construct(preset, arguments, keywords)
        };
        let function = PyCFunction::new_closure(py, Some(name), Some(doc), call)?;
        class.setattr(method(preset), static_method.call1((function,))?)?;
    }
    Ok(())
}

fn method(preset: &Preset) -> String {
    preset.full_name.replace('-', "_")
}

/// The parameters of the constructor. Python gives a pair instead of two parameters for the axes.
fn parameters(preset: &'static Preset) -> impl Iterator<Item = &'static Parameter> {
    preset.parameters.iter().filter(|parameter| parameter.need != Need::Instead)
}

/// The signature, in the form that CPython finds in a function's documentation, and the
/// documentation.
fn documentation(preset: &'static Preset) -> String {
    let (mut signature, mut described) = (Vec::new(), String::new());
    for &Parameter { name, meaning, need, is_whole, axes, .. } in parameters(preset) {
        let number = if is_whole { "int" } else { "float" };
        let pair = axes.map_or_else(String::new, |_| format!(" or pair of {number}"));
        let (default, without) = match need {
            Need::Required | Need::Instead => Default::default(),
            Need::Optional => ("=None".to_owned(), ", optional".to_owned()),
            Need::Default(value) => (format!("={value}"), format!(", default {value}")),
        };
        signature.push(format!("{name}{default}"));
        described += &format!("{name} : {number}{pair}{without}\n    {}\n", sentence(meaning));
    }
    if !described.is_empty() {
        described.insert_str(0, "Parameters\n----------\n");
        described.push('\n');
    }
    format!(
        "{}({})\n--\n\n{}\n\n{described}Returns\n-------\nFilter",
        method(preset),
        signature.join(", "),
        sentence(preset.summary),
    )
}

fn sentence(text: &str) -> String {
    format!("{}{}.", text[..1].to_uppercase(), &text[1..])
}

/// A preset from its constructor's arguments. Makes a text of them, which the parser of filters
/// reads.
///
/// # Errors
/// `TypeError` if the arguments are not those of the signature, `ValueError` if there is no such
/// filter.
fn construct(
    preset: &'static Preset,
    arguments: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Filter> {
    let wrong = || {
        let text = documentation(preset);
        PyTypeError::new_err(format!(
            "the call must be {}",
            text.lines().next().unwrap_or_default()
        ))
    };
    let known: Vec<_> = parameters(preset).collect();
    let mut given: Vec<_> = arguments.iter().map(Some).collect();
    if given.len() > known.len() {
        return Err(wrong());
    }
    given.resize(known.len(), None);
    for (name, value) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        let at = known.iter().position(|parameter| parameter.name == name).ok_or_else(wrong)?;
        if given[at].replace(value).is_some() {
            return Err(wrong());
        }
    }
    let mut texts = Vec::new();
    for (parameter, value) in known.into_iter().zip(given) {
        match (value, parameter.need) {
            (None, Need::Required) => return Err(wrong()),
            (None, _) => {}
            (Some(value), Need::Optional) if value.is_none() => {}
            (Some(value), _) => texts.push(argument(parameter, &value)?),
        }
    }
    let colon = if texts.is_empty() { "" } else { ":" };
    Filter::new(&format!("{}{colon}{}", preset.name, texts.join(",")))
}

/// The text form of a parameter: one number, or one for each axis.
fn argument(parameter: &Parameter, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let (x, y) = match parameter.is_whole {
        true => numbers::<usize>(parameter, value, "a whole number")?,
        false => numbers::<f64>(parameter, value, "a number")?,
    };
    Ok(match parameter.axes {
        Some([first, second]) if x != y => format!("{first}={x},{second}={y}"),
        _ => format!("{}={x}", parameter.name),
    })
}

/// One number for both axes, or one for x and one for y if the parameter takes a pair.
///
/// # Errors
/// `TypeError` for anything else, in one line.
fn numbers<'py, T: FromPyObjectOwned<'py> + Display>(
    parameter: &Parameter,
    value: &Bound<'py, PyAny>,
    kind: &str,
) -> PyResult<(String, String)> {
    if let Ok(both) = value.extract::<T>() {
        return Ok((both.to_string(), both.to_string()));
    }
    let each = value.try_iter().and_then(|each| {
        each.map(|element| element?.extract::<T>().map_err(Into::into))
            .collect::<PyResult<Vec<T>>>()
    });
    let pair = match (each.as_deref(), parameter.axes) {
        (Ok([x, y]), Some(_)) => return Ok((x.to_string(), y.to_string())),
        (_, Some(_)) => ", or a pair of them, for x and for y,",
        (_, None) => "",
    };
    let shown: String =
        value.repr()?.to_string().chars().filter(|char| !char.is_control()).take(60).collect();
    Err(PyTypeError::new_err(format!("{} is {shown}: {kind}{pair} is needed", parameter.name)))
}
