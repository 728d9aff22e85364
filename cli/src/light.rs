//! `--linear`: the light that a picture's values stand for.

use std::str::FromStr;
use std::sync::{Arc, PoisonError};

use apron::{Light, Pipeline, Transfer};
use moxcms::{ColorProfile, ToneReprCurve};

use crate::args::FilterArgs;
use crate::carried::Value;
use crate::failure::Result;
use crate::meta::Meta;
use crate::steps;
use crate::task::Task;

/// The value of `--linear`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Linear {
    /// What the file says, and sRGB if it says nothing.
    File,
    Given(Light),
}

impl FromStr for Linear {
    type Err = apron::Error;

    fn from_str(text: &str) -> apron::Result<Self> {
        if text == "file" { Ok(Self::File) } else { text.parse().map(Self::Given) }
    }
}

/// The way out where a file's own function cannot be used.
const WAY_OUT: &str = "name a function, as in --linear=srgb";

impl Linear {
    /// Of pictures that say nothing.
    pub(crate) fn unless_said(args: &FilterArgs) -> Light {
        match &args.linear {
            None => Light::Stored,
            Some(Self::File) => Light::Linear,
            Some(Self::Given(light)) => light.clone(),
        }
    }

    fn of(&self, meta: &Meta) -> std::result::Result<Light, String> {
        match self {
            Self::Given(light) => Ok(light.clone()),
            Self::File => Ok(said(meta)?.unwrap_or(Light::Linear)),
        }
    }
}

impl Task<'_> {
    /// The pipeline for a picture, by the light that its values stand for.
    pub(crate) fn pipeline_of(&self, meta: &Meta) -> Result<Arc<Pipeline>, String> {
        let Some(linear) = &self.args.linear else { return Ok(self.pipeline.clone()) };
        let light = linear.of(meta)?;
        if light == Linear::unless_said(self.args) {
            return Ok(self.pipeline.clone());
        }
        let mut kept = self.lights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pipeline)) = kept.iter().find(|(other, _)| *other == light) {
            return Ok(pipeline.clone());
        }
        let built =
            steps::pipeline(self.steps.into(), self.args.border, (self.args, light.clone()), None);
        let pipeline = Arc::new(built.map_err(|failure| failure.message)?);
        kept.push((light, pipeline.clone()));
        Ok(pipeline)
    }
}

/// What a file says of its values: formats and chunks in the order that PNG's specification gives
/// (section 4.3, cICP before iCCP before sRGB before gAMA).
fn said(meta: &Meta) -> std::result::Result<Option<Light>, String> {
    if meta.is_linear {
        return Ok(Some(Light::Stored));
    }
    let chunk = |name: &[u8; 4]| {
        meta.carried.iter().find_map(|carried| match &carried.value {
            Some(Value::Chunk(found, data)) if found == name => Some(&data[..]),
            _ => None,
        })
    };
    if let Some(&[_, transfer, ..]) = chunk(b"cICP") {
        return of_code(transfer).map(Some);
    }
    if let Some(profile) = &meta.icc {
        return of_profile(profile).map(Some);
    }
    if chunk(b"sRGB").is_some() {
        return Ok(Some(Light::Linear));
    }
    match chunk(b"gAMA") {
        Some(&[a, b, c, d]) => {
            let gamma = 100_000.0 / f64::from(u32::from_be_bytes([a, b, c, d]));
            let transfer = Transfer::gamma(gamma);
            let light = transfer.map_err(|error| format!("the chunk gAMA: {error}; {WAY_OUT}"))?;
            Ok(Some(light.into()))
        }
        _ => Ok(None),
    }
}

/// The function of a code of transfer characteristics (ITU-T H.273, table 3).
fn of_code(code: u8) -> std::result::Result<Light, String> {
    let gamma = |gamma: f64| Transfer::gamma(gamma).map_err(|error| error.to_string());
    Ok(match code {
        1 | 6 | 14 | 15 => Transfer::bt709().into(),
        4 => gamma(2.2)?.into(),
        5 => gamma(2.8)?.into(),
        8 => Light::Stored,
        13 => Light::Linear,
        16 => Transfer::pq().into(),
        18 => Transfer::hlg().into(),
        _ => {
            return Err(format!(
                "the transfer function {code} of the chunk cICP is not known: {WAY_OUT}"
            ));
        }
    })
}

/// The function of a colour profile, which all its channels must share.
fn of_profile(profile: &[u8]) -> std::result::Result<Light, String> {
    let profile = ColorProfile::new_from_slice(profile)
        .map_err(|error| format!("the colour profile cannot be read ({error}): {WAY_OUT}"))?;
    let curve = match (&profile.red_trc, &profile.green_trc, &profile.blue_trc, &profile.gray_trc) {
        (Some(red), Some(green), Some(blue), _) => {
            if red != green || red != blue {
                return Err(format!("the colour profile has a curve for each colour: {WAY_OUT}"));
            }
            red
        }
        (.., Some(grey)) => grey,
        _ => return Err(format!("the colour profile has tables, and no curves: {WAY_OUT}")),
    };
    let transfer = match curve {
        ToneReprCurve::Lut(light) => match light[..] {
            [] => Transfer::gamma(1.0),
            // A fixed-point number of 8 and 8 bits.
            [gamma] => Transfer::gamma(f64::from(gamma) / 256.0),
            _ => {
                let light: Vec<_> = light.iter().map(|&y| f64::from(y) / 65535.0).collect();
                Transfer::table(&light)
            }
        },
        ToneReprCurve::Parametric(numbers) => {
            // ICC.1:2010, table 65.
            let numbers: Vec<_> = numbers.iter().copied().map(f64::from).collect();
            let parameters = match numbers[..] {
                [g] => [g, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                [g, a, b] => [g, a, b, 0.0, (-b / a).max(0.0), 0.0, 0.0],
                [g, a, b, c] => [g, a, b, 0.0, (-b / a).max(0.0), c, c],
                [g, a, b, c, d] => [g, a, b, c, d, 0.0, 0.0],
                [g, a, b, c, d, e, f] => [g, a, b, c, d, e, f],
                _ => return Err(format!("the colour profile's curve is not known: {WAY_OUT}")),
            };
            Transfer::parametric(parameters)
        }
    };
    let light = transfer.map_err(|error| format!("the colour profile: {error}; {WAY_OUT}"))?;
    Ok(light.into())
}
