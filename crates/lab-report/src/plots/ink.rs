//! What all drawings have in common: sizes, colours with their style sheet, words, and how a drawing becomes a file.

use crate::html::escape;
use crate::series::Colour;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::fmt::Write;

/// What comes of drawing: writing into a string does not fail.
pub(crate) type Done = Result<(), Box<dyn Error>>;

/// The colours as drawn, on light paper, on dark paper. The series are those of Okabe & Ito, Color Universal Design
/// (2008), darkened or lightened where text in them would be hard to read.
const PALETTE: &[(Colour, RGBColor, &str, &str)] = &[
    (Colour::Ink, RGBColor(0x33, 0x33, 0x33), "#1c1b19", "#e4e1d8"),
    (Colour::Soft, RGBColor(0x80, 0x80, 0x80), "#6f6c66", "#a09c92"),
    (Colour::Grid, RGBColor(0xdd, 0xdd, 0xdd), "#e4e1d6", "#33312d"),
    (Colour::Paper, RGBColor(0xff, 0xff, 0xff), "#fffff8", "#161614"),
    (Colour::Series(0), RGBColor(0x00, 0x72, 0xb2), "#0072b2", "#56b4e9"),
    (Colour::Series(1), RGBColor(0xd5, 0x5e, 0x00), "#c95700", "#ff9350"),
    (Colour::Series(2), RGBColor(0x00, 0x9e, 0x73), "#008763", "#35c79d"),
    (Colour::Series(3), RGBColor(0xcc, 0x79, 0xa7), "#b4588c", "#e6a0c8"),
    (Colour::Series(4), RGBColor(0xe6, 0x9f, 0x00), "#a37100", "#f0b73a"),
    (Colour::Series(5), RGBColor(0x56, 0xb4, 0xe9), "#3a87b5", "#a3d2f0"),
];

/// So many colours of series there are before the first comes again.
pub(super) const SERIES: usize = 6;

/// Drawn twice as large as shown: the backend knows whole units only, and a hairline is half of one.
pub(crate) const ZOOM: i32 = 2;
pub(crate) const WIDTH: i32 = 840;
pub(crate) const LEFT: i32 = 64;
pub(crate) const RIGHT: i32 = 170;
/// Above every panel, for its title.
pub(crate) const HEAD: i32 = 38;
/// Within it, where the title begins.
pub(crate) const TITLE: i32 = 13;
/// Below the last panel, for the axis and the name of the line through all.
pub(crate) const FOOT: i32 = 50;

/// A drawing.
pub(crate) struct Drawing {
    /// As an element of a page, without a style of its own.
    pub(crate) element: String,
    height: i32,
}

impl Drawing {
    /// What the backend drew at this height, and words for those who cannot see it.
    pub(crate) fn new(drawn: &str, height: i32, label: &str) -> Drawing {
        Drawing { element: element(drawn, height, label), height }
    }

    /// The same as a file that stands alone.
    pub(crate) fn file(&self) -> String {
        alone(&self.element, self.height)
    }
}

/// The style sheet that gives a drawing its colours.
pub(crate) fn style() -> String {
    let mut css = String::new();
    for (scheme, open, close) in [(0, "", ""), (1, "@media (prefers-color-scheme: dark) {", " }")] {
        let colours: Vec<String> = (PALETTE.iter().enumerate())
            .map(|(i, (_, _, light, dark))| format!("--plot-{i}: {}", if scheme == 0 { light } else { dark }))
            .collect();
        let _ = writeln!(css, "{open}:root {{ {}; }}{close}", colours.join("; "));
    }
    let light: Vec<String> =
        PALETTE.iter().enumerate().map(|(i, (_, _, light, _))| format!("--plot-{i}: {light}")).collect();
    let _ = writeln!(css, "@media print {{:root {{ {}; }} }}", light.join("; "));
    for (i, (_, RGBColor(r, g, b), _, _)) in PALETTE.iter().enumerate() {
        for attribute in ["stroke", "fill"] {
            let _ = writeln!(
                css,
                "svg [{attribute}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {attribute}: var(--plot-{i}); }}"
            );
        }
    }
    css
}

/// What the backend drew as an element without a style of its own, and with words for those who cannot see it.
pub(crate) fn element(drawn: &str, height: i32, label: &str) -> String {
    // The backend's own head says how large it drew; the page decides how large it shows.
    let body = drawn.split_once('>').map_or("", |(_, body)| body);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{body}",
        WIDTH * ZOOM,
        height * ZOOM,
        escape(label),
    )
}

/// An element of this height as a file that stands alone.
pub(crate) fn alone(figure: &str, height: i32) -> String {
    let head = format!("<svg width=\"{WIDTH}\" height=\"{height}\" ");
    let svg = figure.replacen("<svg ", &head, 1);
    // On its own the drawing also decides over the sheet it lies on.
    svg.replacen('>', &format!(">\n<style>\n:root {{ color-scheme: light dark; }}\n{}</style>", style()), 1)
}

/// Words at a place of the drawing, `size` in units of the page.
pub(crate) fn text(
    root: &DrawingArea<SVGBackend, Shift>,
    words: &str,
    at: (i32, i32),
    size: i32,
    of: Colour,
    (h, v): (HPos, VPos),
) -> Done {
    root.draw(&Text::new(words.to_owned(), at, font(size, of).pos(Pos::new(h, v))))?;
    Ok(())
}

/// Sans-serif, `size` in units of the page.
pub(crate) fn font(size: i32, of: Colour) -> TextStyle<'static> {
    // The backend divides by 1.24, to get from a line's height to a letter's.
    ("sans-serif", f64::from(size * ZOOM) * 1.24).into_font().color(&colour(of))
}

/// A colour as drawn; the style sheet replaces it.
pub(crate) fn colour(of: Colour) -> RGBColor {
    let of = if let Colour::Series(i) = of { Colour::Series(i % SERIES) } else { of };
    PALETTE.iter().find(|(colour, ..)| *colour == of).map_or(BLACK, |(_, drawn, ..)| *drawn)
}

/// A name that fits beside the panel. What tells it from others may be its first word or its last.
pub(crate) fn shortened(label: &str) -> String {
    const FITS: usize = 24;
    const LAST: usize = 9;
    let count = label.chars().count();
    match count > FITS {
        true => {
            let first = label.chars().take(FITS - 1 - LAST);
            first.chain(['…']).chain(label.chars().skip(count - LAST)).collect()
        }
        false => label.to_owned(),
    }
}

/// A tick without the digits that only say how exact it is: `5.00k` is `5k`.
pub(crate) fn trimmed(tick: &str) -> String {
    let end = tick.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tick.len());
    let (number, unit) = tick.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => tick.to_owned(),
    }
}
