//! How a run near the knee went: the panels over seconds, stacked, and where its warm-up seems to end.

use super::plots::{self, Done, Drawing, Drawn, FOOT, Over, Shared, WIDTH, ZOOM, colour, text};
use super::series::Colour;
use lab_analysis::{Course, WorkloadFindings};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// The panels; `None` where no run was long enough.
pub(super) fn figure(found: &WorkloadFindings) -> Option<Drawing> {
    let course = found.course.as_ref()?;
    let panels = plots::panels(Over::Seconds, found);
    let height = plots::height(&panels);
    let mut svg = String::new();
    draw(&mut svg, &panels, course, height).expect("writing into a string does not fail");
    let label = format!("{}: goodput and mean latency in the window", found.name);
    Some(Drawing::new(&svg, height, &label))
}

/// What stands below it.
pub(super) fn caption(course: &Course) -> String {
    let clients = super::words::count(course.level, "client");
    let cut = if course.cut_secs > 0.0 { " Dashed: where the warm-up seems to end." } else { "" };
    let bins = match course.bin_secs {
        1.0 => "second by second".to_owned(),
        secs => format!("in bins of {secs} s"),
    };
    format!("Run {} at {clients}, {bins}. {}{cut}", course.repetition + 1, course.said)
}

fn draw(svg: &mut String, panels: &[Drawn], course: &Course, height: i32) -> Done {
    let root =
        SVGBackend::with_string(svg, ((WIDTH * ZOOM) as u32, (height * ZOOM) as u32)).into_drawing_area();
    let seconds = course.goodput_rps.len() as f64 * course.bin_secs;
    let shared = Shared { ends: (0.0, seconds), place: |second| second };
    let bottom = (height - FOOT) * ZOOM;
    if course.cut_secs > 0.0 {
        let x = shared.x(course.cut_secs);
        plots::upright(&root, panels, x, bottom)?;
        let label = format!("warm-up {} s", (course.cut_secs * 10.0).round() / 10.0);
        text(&root, &label, (x, bottom + 24 * ZOOM), 12, Colour::Soft, (HPos::Center, VPos::Top))?;
    }
    for drawn in panels {
        plots::panel(&root, drawn, shared)?;
    }
    let step = plots::step(seconds);
    for tick in (0..).map(|i| f64::from(i) * step).take_while(|tick| *tick <= seconds) {
        let x = shared.x(tick);
        root.draw(&PathElement::new(vec![(x, bottom), (x, bottom + 4 * ZOOM)], colour(Colour::Ink)))?;
        let at = (x, bottom + 7 * ZOOM);
        text(&root, &format!("{tick}"), at, 12, Colour::Ink, (HPos::Center, VPos::Top))?;
    }
    text(&root, "seconds", (0, bottom + 7 * ZOOM), 12, Colour::Ink, (HPos::Left, VPos::Top))?;
    root.present()?;
    Ok(())
}
