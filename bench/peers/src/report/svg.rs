//! A picture as text, readable on light and on dark ground.

use std::fmt::Write;

/// Where a text has the point that it is put at.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What has no colour of its own has that of the ground's opposite.
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#24292f}\
    .title{font-weight:600;font-size:14px}.grid{stroke:#d0d7de}.ground{fill:#fff}\
    .ink{fill:#24292f;stroke:#24292f}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.grid{stroke:#3d444d}\
    .ground{fill:#0d1117}.ink{fill:#e6edf3;stroke:#e6edf3}}";

pub(super) struct Svg {
    text: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" width=\"{width:.0}\" height=\"{height:.0}\"/>\n"
        );
        Self { text }
    }

    pub(super) fn finish(self) -> String {
        self.text + "</svg>\n"
    }

    pub(super) fn title(&mut self, x: f64, y: f64, text: &str) {
        self.put(format_args!(
            "<text class=\"title\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            Escaped(text)
        ));
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            Escaped(text)
        ));
    }

    pub(super) fn grid(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        self.put(format_args!(
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    pub(super) fn bar(&mut self, [x, y]: [f64; 2], width: f64, height: f64, paint: &str) {
        let paint = Paint(paint);
        self.put(format_args!(
            "<rect {paint} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    pub(super) fn dot(&mut self, [x, y]: [f64; 2], paint: &str) {
        let paint = Paint(paint);
        self.put(format_args!(
            "<circle {paint} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
        ));
    }

    /// With a dot at each point.
    pub(super) fn line(&mut self, points: &[[f64; 2]], paint: &str) {
        let place = |[x, y]: &[f64; 2]| format!("{x:.1},{y:.1}");
        let places: Vec<String> = points.iter().map(place).collect();
        self.put(format_args!(
            "<polyline {} points=\"{}\" style=\"fill:none\" stroke-width=\"2\"/>",
            Paint(paint),
            places.join(" ")
        ));
        for point in points {
            self.dot(*point, paint);
        }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // A string takes all that is written.
        let _ = writeln!(self.text, "{element}");
    }
}

/// The attributes for a colour, or for that of texts where it has no name.
struct Paint<'a>(&'a str);

impl std::fmt::Display for Paint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            "" => f.write_str("class=\"ink\""),
            paint => write!(f, "fill=\"{paint}\" stroke=\"{paint}\""),
        }
    }
}

struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.replace('&', "&amp;").replace('<', "&lt;"))
    }
}
