//! The book about apron: its text is in `text/`, and `mdbook build book` makes pages of it.
//!
//! This package holds the text to the library: every block of Rust in it, and in the repository's
//! `README.md`, is a documentation test, and the tests of this package check its links.
//! `cargo run -p apron-book` draws its pictures.

pub mod pictures;

#[cfg(test)]
mod links;

macro_rules! compiled {
    ($($name:ident: $file:literal,)*) => {$(
        #[cfg(doctest)]
        #[doc = include_str!($file)]
        pub mod $name {}
    )*};
}

compiled! {
    readme: "../../README.md",
    introduction: "../text/introduction.md",
    start: "../text/start.md",
    recipes: "../text/recipes.md",
    coming_from: "../text/coming-from.md",
    borders: "../text/borders.md",
    rounding: "../text/rounding.md",
    kernels: "../text/kernels.md",
    ladder: "../text/ladder.md",
    performance: "../text/performance.md",
    your_own: "../text/your-own.md",
}
