//! What a plan computes.

use crate::{Error, Filter, Gradient, Result};

/// What a [`Plan`](crate::Plan) computes: a filter, or a gradient. Both become one by `into`.
///
/// ```
/// use apron::{Filter, Gradient, Step};
///
/// assert_eq!("scharr".parse::<Step>()?, Gradient::scharr().into());
/// assert_eq!("sobel-x".parse::<Step>()?, Filter::sobel_x().into());
/// # Ok::<(), apron::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A correlation with taps.
    Filter(Filter),
    /// The magnitude or the angle of two derivatives.
    Gradient(Gradient),
}

impl Step {
    /// The filter, or the window of the gradient; and the gradient, if it is one.
    pub(crate) fn parts(self) -> Result<(Filter, Option<Gradient>)> {
        match self {
            Self::Filter(filter) => Ok((filter, None)),
            Self::Gradient(gradient) => Ok((gradient.window()?, Some(gradient))),
        }
    }
}

impl From<Filter> for Step {
    fn from(filter: Filter) -> Self {
        Self::Filter(filter)
    }
}

impl From<&Filter> for Step {
    fn from(filter: &Filter) -> Self {
        Self::Filter(filter.clone())
    }
}

impl From<Gradient> for Step {
    fn from(gradient: Gradient) -> Self {
        Self::Gradient(gradient)
    }
}

impl From<&Step> for Step {
    fn from(step: &Step) -> Self {
        step.clone()
    }
}

/// A gradient's name, or what a [`Filter`] reads.
impl std::str::FromStr for Step {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(gradient) => Ok(Self::Gradient(gradient)),
            Err(_) => text.parse().map(Self::Filter),
        }
    }
}

/// What `FromStr` reads back as an equal step.
impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Filter(filter) => filter.fmt(f),
            Self::Gradient(gradient) => gradient.fmt(f),
        }
    }
}
