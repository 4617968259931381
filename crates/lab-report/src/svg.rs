//! Drawings as SVG text: shapes, words and colours.
//!
//! Colours are attributes that any viewer understands; a style sheet replaces them on a dark page.

use kv::escaped;

/// A colour by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Axes and their text.
    Ink,
    /// What was not measured: limits, the knee.
    Soft,
    /// Lines of the grid.
    Grid,
    /// What is under the drawing; it fills hollow points.
    Paper,
    /// Series, counted from 0; after the last the first again.
    Series(usize),
}

/// On a light page, on a dark page. The series are those of Okabe & Ito, Color Universal Design (2008), darkened or
/// lightened where text in them would be hard to read.
const PALETTE: &[(Colour, &str, &str)] = &[
    (Colour::Ink, "#1c1b19", "#e4e1d8"),
    (Colour::Soft, "#6f6c66", "#a09c92"),
    (Colour::Grid, "#e4e1d6", "#33312d"),
    (Colour::Paper, "#fffff8", "#161614"),
    (Colour::Series(0), "#0072b2", "#56b4e9"),
    (Colour::Series(1), "#c95700", "#ff9350"),
    (Colour::Series(2), "#008763", "#35c79d"),
    (Colour::Series(3), "#b4588c", "#e6a0c8"),
    (Colour::Series(4), "#a37100", "#f0b73a"),
    (Colour::Series(5), "#3a87b5", "#a3d2f0"),
];

/// The number of colours for series.
pub(super) const SERIES: usize = 6;

fn light(of: Colour) -> &'static str {
    let of = if let Colour::Series(i) = of { Colour::Series(i % SERIES) } else { of };
    PALETTE.iter().find(|(colour, ..)| *colour == of).map_or("#000", |(_, light, _)| light)
}

/// The style sheet that replaces the colours on a dark page.
pub(super) fn style() -> String {
    let rule = |(_, light, dark): &(Colour, &str, &str)| {
        format!("svg [stroke=\"{light}\"] {{ stroke: {dark}; }} svg [fill=\"{light}\"] {{ fill: {dark}; }}\n")
    };
    let rules: String = PALETTE.iter().map(rule).collect();
    format!("@media screen and (prefers-color-scheme: dark) {{\n{rules}}}\n")
}

/// Which end of a text is at its place.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// The left end.
    Start,
    /// Its middle.
    Middle,
    /// The right end.
    End,
}

/// A place in a drawing, from its upper left corner.
pub(crate) type Place = (f64, f64);

/// A drawing that is being made.
pub struct Svg {
    pub(super) width: f64,
    pub(super) height: f64,
    body: String,
}

impl Svg {
    /// An empty drawing of this size.
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new() }
    }

    /// A line through `points`.
    pub fn line(&mut self, points: &[Place], colour: Colour, width: f64) {
        self.dashed(points, colour, width, "none");
    }

    /// A line through `points`; `dashes` as in SVG: `6 4`.
    pub fn dashed(&mut self, points: &[Place], colour: Colour, width: f64, dashes: &str) {
        let (points, colour) = (list(points), light(colour));
        self.body += &format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"/>\n"
        );
    }

    /// What lies within `outline`, filled.
    pub fn area(&mut self, outline: &[Place], colour: Colour, opacity: f64) {
        let (points, colour) = (list(outline), light(colour));
        self.body +=
            &format!("<polygon points=\"{points}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>\n");
    }

    /// A dot; a hollow one is filled with paper.
    pub fn dot(&mut self, (x, y): Place, radius: f64, colour: Colour, hollow: bool) {
        let (fill, stroke) = (light(if hollow { Colour::Paper } else { colour }), light(colour));
        let (x, y) = (short(x), short(y));
        self.body +=
            &format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n");
    }

    /// Words whose middle line is at `at`.
    pub fn text(&mut self, words: &str, (x, y): Place, size: f64, colour: Colour, anchor: Anchor) {
        let anchor = format!("{anchor:?}").to_lowercase();
        let (x, y, colour, words) = (short(x), short(y), light(colour), escaped(words));
        self.body += &format!(
            "<text x=\"{x}\" y=\"{y}\" dy=\".35em\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{words}</text>\n"
        );
    }

    /// The drawing as an element of a page. `label` is for those who cannot see it.
    pub fn element(&self, label: &str) -> String {
        self.tagged(label, "", "")
    }

    /// The drawing as a file.
    pub fn file(&self, label: &str) -> String {
        let size = format!("width=\"{}\" height=\"{}\" ", self.width, self.height);
        let paper = format!("<rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n", light(Colour::Paper));
        self.tagged(label, &size, &format!("<style>\n{}</style>\n{paper}", style()))
    }

    fn tagged(&self, label: &str, size: &str, head: &str) -> String {
        let Svg { width, height, body } = self;
        format!(
            "<svg {size}xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\" font-family=\"sans-serif\">\n{head}{body}</svg>\n",
            escaped(label)
        )
    }
}

/// A coordinate with one decimal: a tenth of a pixel is enough.
fn short(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn list(points: &[Place]) -> String {
    points.iter().map(|(x, y)| format!("{},{}", short(*x), short(*y))).collect::<Vec<_>>().join(" ")
}
