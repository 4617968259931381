//! Pictures of one family with the plots of the reports.

use lab_report::{Colour, Kind, Panel, Point, Scale, Series, WIDE, XAxis, stacked};

/// Panels over one axis.
pub(crate) struct Picture {
    /// Of its file.
    pub(crate) name: &'static str,
    /// For those who do not see it.
    pub(crate) about: &'static str,
    /// What grows from left to right.
    pub(crate) axis: &'static str,
    /// Where along the axis, which is logarithmic, and what is written there.
    pub(crate) levels: Vec<(f64, String)>,
    pub(crate) panels: Vec<Panel>,
}

/// A name and the points of a line.
pub(crate) type Line = (&'static str, Vec<Point>);

/// A panel of these lines.
pub(crate) fn panel(title: String, scale: Scale, tick: fn(f64) -> String, lines: Vec<Line>) -> Panel {
    let series = |(i, (label, points))| Series::new(label, Colour::Series(i), Kind::Measured, points);
    Panel { title, scale, tick, series: lines.into_iter().enumerate().map(series).collect() }
}

/// A file that stands alone.
pub(crate) fn svg(picture: Picture) -> String {
    let x = XAxis { unit: picture.axis, scale: Scale::Log, ticks: picture.levels, mark: None };
    stacked(&x, picture.panels, WIDE).file(picture.about)
}
