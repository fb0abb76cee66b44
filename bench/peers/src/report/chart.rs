//! The figures as a picture of six panels.

use super::axis::Axis;
use super::svg::{Anchor, Svg};
use super::tables::megabytes;
use super::{Results, distinct, short, size};
use crate::results::{Overhead, Rounds, Routing, RoutingRound, Scale, ScaleRow};

const WIDTH: f64 = 1_040.0;
const HEIGHT: f64 = 1_180.0;
/// The load of the first panel; the second has its connections.
const BODY: usize = 4 << 10;
const CONNECTIONS: usize = 16;

/// Gateways and their colours, in the order of the legend. One without a colour has that of the texts.
const PAINTS: [(&str, &str); 10] = [
    ("no gateway", "#d946ef"),
    ("plain Envoy", "#94a3b8"),
    ("floor", "#64748b"),
    ("rolter round_robin", "#b08968"),
    ("rolter cache_aware", "#60a5fa"),
    ("rolter pipeline", "#2563eb"),
    ("rolter precise_cache_aware", "#8b5cf6"),
    ("sglang-router cache_aware", "#f59e0b"),
    ("vllm-router cache_aware", "#34d399"),
    ("vllm-router kv_aware", "#059669"),
];

fn paint(name: &str) -> &'static str {
    let known =
        |(known, _): &&(&str, &str)| *known == name || known.strip_prefix("rolter ") == Some(name);
    PAINTS.iter().find(known).map_or("", |(_, paint)| paint)
}

/// Where a panel is, without its title and the texts around it.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn y(self, share: f64) -> f64 {
        self.top + self.height * (1.0 - share)
    }

    /// The middle of one of so many columns.
    #[expect(clippy::cast_precision_loss, reason = "a few columns")]
    fn column(self, place: usize, of: usize) -> f64 {
        self.left + self.width * (place as f64 + 0.5) / of as f64
    }
}

/// A value for each column, by who has it.
type Series<'a> = Vec<(&'a str, Vec<f64>)>;

pub(super) fn draw(results: &Results) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    legend(&mut svg, results);
    let half = |left, top| Frame {
        left,
        top,
        width: 420.0,
        height: 190.0,
    };
    let whole = |top| Frame {
        left: 60.0,
        top,
        width: WIDTH - 90.0,
        height: 190.0,
    };
    if let Some(overhead) = &results.overhead {
        let left = Frame {
            left: 210.0,
            width: 230.0,
            ..half(0.0, 110.0)
        };
        rates(&mut svg, left, overhead);
        processor(&mut svg, half(590.0, 110.0), overhead);
    }
    if let Some(routing) = &results.routing {
        let hits = columns(routing, |round| 100.0 * round.hit_rate);
        groups(
            &mut svg,
            whole(390.0),
            "prompt tokens found in caches by workload and engines, %",
            routing,
            &hits,
            false,
        );
        let p90 = columns(routing, |round| round.ttft_p90_ms);
        groups(
            &mut svg,
            whole(660.0),
            "time to first token by workload and engines, p90, ms",
            routing,
            &p90,
            true,
        );
    }
    if let Some(scale) = &results.scale {
        let decision = |row: &ScaleRow| row.decision_nanos / 1e3;
        let title = "a decision by targets, µs";
        growth(&mut svg, half(60.0, 940.0), title, scale, decision);
        let memory = |row: &ScaleRow| megabytes(row.memory_bytes);
        let title = "memory of a worker by targets, MB";
        growth(&mut svg, half(590.0, 940.0), title, scale, memory);
    }
    svg.finish()
}

/// All that have a place in one of the panels.
fn legend(svg: &mut Svg, results: &Results) {
    const COLUMN: f64 = 250.0;
    let costs = results.overhead.iter().flat_map(Overhead::gateways);
    let routes = results.routing.iter().flat_map(Routing::gateways);
    let mut names = distinct(costs.chain(routes));
    names.sort_by_key(|name| {
        let known = PAINTS.iter().position(|(known, _)| known == name);
        known.unwrap_or(PAINTS.len())
    });
    let (mut x, mut y) = (20.0, 24.0);
    for name in names {
        svg.bar([x, y - 9.0], 10.0, 10.0, paint(name));
        svg.text(x + 16.0, y, Anchor::Start, name);
        x += COLUMN;
        if x + COLUMN > WIDTH {
            (x, y) = (20.0, y + 20.0);
        }
    }
}

/// Requests in a second, a bar for each gateway.
fn rates(svg: &mut Svg, frame: Frame, overhead: &Overhead) {
    let load = format!("requests/s, {} and {CONNECTIONS} connections", size(BODY));
    svg.title(20.0, frame.top - 12.0, &load);
    let rates = overhead.gateways().into_iter().filter_map(|name| {
        let row = overhead.row(name, BODY, CONNECTIONS)?;
        Some((name, row.median(|round| round.requests_per_sec)))
    });
    let rates: Vec<(&str, f64)> = rates.collect();
    let axis = Axis::linear(rates.iter().map(|(_, rate)| *rate));
    let mut y = frame.top;
    for (name, rate) in rates {
        let width = frame.width * axis.at(rate);
        svg.text(frame.left - 8.0, y + 16.0, Anchor::End, name);
        svg.bar([frame.left, y + 3.0], width, 18.0, paint(name));
        svg.text(
            frame.left + width + 6.0,
            y + 16.0,
            Anchor::Start,
            &format!("{rate:.0}"),
        );
        y += 31.0;
    }
}

/// Processor time of a request, by the size of its body.
fn processor(svg: &mut Svg, frame: Frame, overhead: &Overhead) {
    let sizes = overhead.sizes();
    let of = |name: &str, bytes| {
        let row = overhead.row(name, bytes, CONNECTIONS);
        row.map_or(f64::NAN, |row| {
            row.median(|round| round.cpu_secs_per_1000 * 1e3)
        })
    };
    let series = overhead.gateways().into_iter();
    let series = series.map(|name| (name, sizes.iter().map(|bytes| of(name, *bytes)).collect()));
    let series: Series<'_> = series.collect();
    let labels: Vec<String> = sizes.iter().map(|bytes| size(*bytes)).collect();
    let title = format!("processor time of a request, {CONNECTIONS} connections, µs");
    lines(svg, frame, &title, &labels, &series);
}

/// A figure of each strategy by the number of targets.
fn growth(svg: &mut Svg, frame: Frame, title: &str, scale: &Scale, figure: fn(&ScaleRow) -> f64) {
    let targets = scale.targets();
    let of = |name: &str, targets| scale.row(name, targets).map_or(f64::NAN, figure);
    let series = scale.strategies().into_iter();
    let series = series.map(|name| (name, targets.iter().map(|few| of(name, *few)).collect()));
    let series: Series<'_> = series.collect();
    let labels: Vec<String> = targets.iter().map(usize::to_string).collect();
    lines(svg, frame, title, &labels, &series);
}

fn lines(svg: &mut Svg, frame: Frame, title: &str, labels: &[String], series: &Series<'_>) {
    let axis = Axis::powers(series.iter().flat_map(|(_, values)| values.iter().copied()));
    ground(svg, frame, title, axis, labels);
    for (name, values) in series {
        let there = values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_finite());
        let points = there
            .map(|(place, value)| [frame.column(place, labels.len()), frame.y(axis.at(*value))]);
        let points: Vec<[f64; 2]> = points.collect();
        svg.line(&points, paint(name));
    }
}

/// A figure of each player, by workload and fleet.
fn columns(routing: &Routing, figure: fn(&RoutingRound) -> f64) -> Series<'_> {
    let plays = routing.plays();
    let of = |name: &str, (workload, engines): &(&str, usize)| {
        let row = routing.row(name, workload, *engines);
        row.map_or(f64::NAN, |row| row.median(figure))
    };
    let players = routing.gateways().into_iter();
    let series = players.map(|name| (name, plays.iter().map(|play| of(name, play)).collect()));
    series.collect()
}

/// Those of each workload and fleet side by side: as bars from zero, or as dots where the axis has no
/// zero.
#[expect(clippy::cast_precision_loss, reason = "a few players")]
fn groups(
    svg: &mut Svg,
    frame: Frame,
    title: &str,
    routing: &Routing,
    series: &Series<'_>,
    dots: bool,
) {
    let labels = routing.plays().into_iter();
    let labels = labels.map(|(workload, engines)| format!("{workload}, {engines}"));
    let labels: Vec<String> = labels.collect();
    let values = series.iter().flat_map(|(_, values)| values.iter().copied());
    let axis = if dots {
        Axis::powers(values)
    } else {
        Axis::linear(values)
    };
    ground(svg, frame, title, axis, &labels);
    let step = frame.width / labels.len().max(1) as f64 * 0.8 / series.len().max(1) as f64;
    for (nth, (name, values)) in series.iter().enumerate() {
        let beside = (nth as f64 - (series.len() - 1) as f64 / 2.0) * step;
        for (place, value) in values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_finite())
        {
            let (x, share) = (frame.column(place, labels.len()) + beside, axis.at(*value));
            if dots {
                svg.dot([x, frame.y(share)], paint(name));
            } else {
                let corner = [x - step * 0.4, frame.y(share)];
                svg.bar(corner, step * 0.8, frame.height * share, paint(name));
            }
        }
    }
}

/// Title, lines across and what stands below the columns.
fn ground(svg: &mut Svg, frame: Frame, title: &str, axis: Axis, labels: &[String]) {
    svg.title(frame.left - 40.0, frame.top - 12.0, title);
    for mark in axis.marks() {
        let y = frame.y(axis.at(mark));
        svg.grid([frame.left, y], [frame.left + frame.width, y]);
        let text = if mark == 0.0 {
            "0".to_owned()
        } else {
            round(mark)
        };
        svg.text(frame.left - 6.0, y + 4.0, Anchor::End, &text);
    }
    for (place, label) in labels.iter().enumerate() {
        let x = frame.column(place, labels.len());
        svg.text(x, frame.top + frame.height + 18.0, Anchor::Middle, label);
    }
}

/// A mark without digits that say nothing.
fn round(mark: f64) -> String {
    let text = short(mark);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
