//! Where the clients are: how many wait for each resource and how many it serves (docs/method.md, Limit).
//!
//! A client is in one place at a time, so the places add up to the clients there are; what is left over is said.
//! How many are outside of the server follows from what it counts exactly, so that samples of sockets say only in which of them those are.
//! A thread that answers from sockets is busy for longer than it has a client in its hands: while it takes the request out,
//! and once the answer is delivered, the client lies in a socket and is counted there.

use kv::proto::LoadReport;
use lab_data::results::{Resource, ResourceKind, Results, Run, Trial};
use serde::Serialize;
use stats::mean;

/// The clients of a row by where they are, means over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Population {
    /// All of them.
    pub clients: f64,
    /// Those who think or rest, and ask for nothing.
    pub away: f64,
    /// The others by resource, in the order of the results; what was not read is not in it.
    pub places: Vec<Place>,
    /// The clients that no place accounts for; negative where places count some twice.
    pub unaccounted: f64,
    /// Whether samples of sockets waited for a core, and saw too little of those that queue there.
    pub is_late: bool,
}

/// One resource and who is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The resource's name.
    pub resource: String,
    /// Whether it is one of the load generator.
    pub is_generator: bool,
    /// Whether it is used while another is held, whose place counts the client: then it is no part of the sum.
    pub inner: bool,
    /// Clients that wait for it; `None` where its queue cannot be seen.
    pub waiting: Option<f64>,
    /// Clients it serves; of a thread's time only so much as is left for those who lie in no socket.
    pub serving: Option<f64>,
}

/// Where the clients of the runs were; `None` where no resource tells.
pub(super) fn population(results: &Results, ran: &[Run]) -> Option<Population> {
    // If all runs are so, they are all there is.
    let sampled: Vec<Run> = ran.iter().copied().filter(|(trial, _)| is_sampled(trial)).collect();
    let runs = Runs { results, ran: if sampled.is_empty() { ran } else { &sampled } };
    let mut places = runs.places();
    if places.iter().all(|place| place.is_generator) {
        return None;
    }
    let clients = runs.mean(&|trial, _| Some(f64::from(trial.level)))?;
    let away = runs.mean(&|_, load| Some((load.think_secs + load.backoff_secs) / load.window_secs))?;
    let unread: Vec<Option<f64>> = places.iter().map(|place| runs.counted(&runs.sockets(place))).collect();
    let sending: f64 =
        places.iter().filter(|place| place.is_generator).filter_map(|place| place.serving).sum();
    // What is on its way through a link is in no socket that is sampled.
    let mut counters = ran.iter().flat_map(|(trial, _)| trial.closed.counters.keys());
    let is_linked = counters.any(|name| name.starts_with(LINK));
    let inside = runs.counted(&[INSIDE.to_owned()]).filter(|_| !is_linked);
    let is_shared_out =
        inside.is_some_and(|inside| share_out(clients - away - inside - sending, &mut places, &unread));
    let located =
        |places: &[Place]| places.iter().filter(|place| !place.inner).map(Place::clients).sum::<f64>();
    let over = located(&places) + away - clients;
    // Those of the generator are no longer counted twice where the rest was shared out.
    let counts_once = |place: &Place| {
        place.inner || runs.sockets(place).is_empty() || (is_shared_out && place.is_generator)
    };
    let threads = places.iter_mut().filter(|place| !counts_once(place));
    take_off(over, threads.filter_map(|place| place.serving.as_mut()).collect());
    let unaccounted = clients - away - located(&places);
    let is_late = ran.iter().any(|(trial, _)| trial.closed.gauges.get(PROMPT) == Some(&0.0));
    Some(Population { clients, away, unaccounted, is_late, places })
}

/// Whether there are enough samples of sockets, if they are taken at all. One that came late may be all there is of a trial in which the machine
/// stopped: it would count as what was there all the time.
fn is_sampled(trial: &Trial) -> bool {
    trial.growth(SAMPLES).is_none_or(|samples| samples >= SAMPLES_MIN)
}

/// The runs of a level.
struct Runs<'r> {
    results: &'r Results,
    ran: &'r [Run<'r>],
}

impl Runs<'_> {
    /// A figure's mean over the runs; `None` where one has none.
    fn mean(&self, figure: &dyn Fn(&Trial, &LoadReport) -> Option<f64>) -> Option<f64> {
        mean(self.ran.iter().map(|(trial, load)| figure(trial, load)).collect::<Option<Vec<f64>>>()?)
    }

    /// What these counters grew by in a second, together; `None` where one was not read, or there are none.
    fn counted(&self, names: &[String]) -> Option<f64> {
        let grown =
            |trial: &Trial, _: &LoadReport| names.iter().map(|name| trial.per_sec(name)).sum::<Option<f64>>();
        (!names.is_empty()).then(|| self.mean(&grown)).flatten()
    }

    /// The resources that tell anything, as they tell it.
    fn places(&self) -> Vec<Place> {
        let place = |resource: &Resource| {
            let (waiting, serving) = (self.counted(&resource.waiting), self.counted(&resource.serving));
            (waiting.is_some() || serving.is_some()).then(|| Place {
                resource: resource.name.clone(),
                is_generator: resource.kind == ResourceKind::Generator,
                inner: !resource.within.is_empty(),
                waiting,
                serving,
            })
        };
        self.results.resources.iter().filter_map(place).collect()
    }

    /// Those counters of who waits for a place that are samples of sockets.
    fn sockets(&self, place: &Place) -> Vec<String> {
        let resource = self.results.resources.iter().find(|resource| resource.name == place.resource);
        let waiting = resource.into_iter().flat_map(|resource| &resource.waiting);
        waiting.filter(|name| name.starts_with(SOCKETS)).cloned().collect()
    }
}

/// What is sampled in sockets.
const SOCKETS: &str = "sockets.";
/// How often.
const SAMPLES: &str = "sockets.samples";
/// Of the eight that the windows of the first run have room for.
const SAMPLES_MIN: f64 = 4.0;
/// For how long requests were in the server, from when it had read them to when it had answered: over time the mean number there. What was
/// answered is counted with all of its time, so at the edges of a window it is off by as much as came in step.
const INSIDE: &str = "stats.weir_http_request_duration_seconds_sum";
/// 1 where samples come when they are due.
const PROMPT: &str = "sockets.prompt";
/// What passes through a link.
const LINK: &str = "link.";
/// What samples saw is believed to be all that is in sockets, seen well or badly, up to this factor either way. Beyond it there is something else.
const SEEN: f64 = 3.0;

/// Makes what was seen unread add up to `there`, the clients that are neither in the server nor in the generator's hands; whether it
/// could be: samples that saw something quite different saw only a part of where these are.
fn share_out(there: f64, places: &mut [Place], unread: &[Option<f64>]) -> bool {
    let seen: f64 = unread.iter().flatten().sum();
    let scale = there / seen;
    if !(1.0 / SEEN..=SEEN).contains(&scale) {
        return false;
    }
    for (place, unread) in places.iter_mut().zip(unread) {
        if let (Some(waiting), Some(unread)) = (&mut place.waiting, unread) {
            *waiting += *unread * (scale - 1.0);
        }
    }
    true
}

/// Takes `over` off the figures in proportion. More than all of them is not theirs: then they stay as they are.
fn take_off(over: f64, figures: Vec<&mut f64>) {
    let total: f64 = figures.iter().map(|figure| **figure).sum();
    if over > 0.0 && over < total {
        let left = 1.0 - over / total;
        figures.into_iter().for_each(|figure| *figure *= left);
    }
}

impl Place {
    /// All clients there.
    pub fn clients(&self) -> f64 {
        self.waiting.unwrap_or(0.0) + self.serving.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::simulated::tests::{model, sweep};

    /// Ten clients of one trial of a second, and what it counted.
    fn accounting(counters: &[(&str, f64)]) -> [f64; 5] {
        let mut results = sweep(&model("cpu 1 1ms"), &["w"], &[10], 1, "1s");
        let resource = |name: &str, kind, waiting: &[&str], serving: &str| Resource {
            name: name.into(),
            kind,
            waiting: waiting.iter().map(|name| (*name).to_owned()).collect(),
            serving: vec![serving.to_owned()],
            ..Resource::default()
        };
        results.resources = vec![
            resource("workers", ResourceKind::Station, &["sockets.server", "stats.queue"], "stats.busy"),
            resource("generator", ResourceKind::Generator, &["sockets.generator"], "generator.cpu"),
        ];
        let trial = &mut results.trials[0];
        trial.elapsed_secs = 1.0;
        trial.opened.counters = counters.iter().map(|(name, _)| ((*name).to_owned(), 0.0)).collect();
        trial.closed.counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let load = trial.load.clone().unwrap();
        let found = population(&results, &[(&results.trials[0], &load)]).unwrap();
        let [workers, generator] = found.places.as_slice() else { panic!("{found:?}") };
        let of = |place: &Place| [place.waiting.unwrap_or(-1.0), place.serving.unwrap_or(-1.0)];
        let ([before, within], [unread, sending]) = (of(workers), of(generator));
        [before, within, unread, sending, found.unaccounted].map(|clients| (clients * 100.0).round() / 100.0)
    }

    #[test]
    fn counts_say_how_many_are_in_sockets_and_samples_in_which() {
        let server = [("stats.queue", 2.0), ("stats.busy", 0.7), ("generator.cpu", 0.5)];
        let samples = [("sockets.server", 3.0), ("sockets.generator", 1.0)];
        let inside = [(INSIDE, 2.5)];
        let of = |counted: &[&[(&str, f64)]]| accounting(&counted.concat());
        // Seven are left for sockets, of which four were seen; a worker is busy for 0.2 with clients who lie there.
        assert_eq!(of(&[&server, &samples, &inside]), [2.0 + 5.25, 0.5, 1.75, 0.5, 0.0]);
        // Of a server that does not tell, samples are all that is known.
        assert_eq!(of(&[&server, &samples]), [5.0, 0.7, 1.0, 0.5, 2.8]);
        // Where clients are on their way through a link, or somewhere else that nobody samples.
        assert_eq!(
            of(&[&server, &samples, &inside, &[("link.serving_secs", 1.0)]]),
            [5.0, 0.7, 1.0, 0.5, 2.8]
        );
        let few = [("sockets.server", 0.5), ("sockets.generator", 0.5)];
        assert_eq!(of(&[&server, &few, &inside]), [2.5, 0.7, 0.5, 0.5, 5.8]);
        let none = [("sockets.server", 0.0), ("sockets.generator", 0.0)];
        assert_eq!(of(&[&server, &none, &inside]), [2.0, 0.7, 0.0, 0.5, 6.8]);
        // More than there are, and more inside than there are: what is over is the threads'.
        let all = [("sockets.server", 6.0), ("sockets.generator", 1.4)];
        assert_eq!(of(&[&server, &all]), [8.0, 0.35, 1.4, 0.25, 0.0]);
        assert_eq!(of(&[&server, &all, &[(INSIDE, 10.5)]]), [8.0, 0.35, 1.4, 0.25, 0.0]);
        // Nothing was sampled: the threads' time is over all the same.
        let busy = [("stats.queue", 2.0), ("stats.busy", 9.9), ("generator.cpu", 0.5)];
        assert_eq!(of(&[&busy, &inside]), [-1.0, 9.52, -1.0, 0.48, 0.0]);
    }

    #[test]
    fn a_run_with_hardly_a_sample_says_nothing_of_where_clients_are() {
        let mut results = sweep(&model("cpu 1 1ms"), &["w"], &[10], 2, "1s");
        results.resources[0].waiting = vec!["sockets.server".into()];
        for (trial, (samples, unread)) in results.trials.iter_mut().zip([(8.0, 4.0), (1.0, 90.0)]) {
            let elapsed = trial.elapsed_secs;
            for (name, to) in [("sockets.server", unread * elapsed), (SAMPLES, samples)] {
                trial.opened.counters.insert(name.into(), 0.0);
                trial.closed.counters.insert(name.into(), to);
            }
        }
        let waiting = |trials: &[Trial]| {
            let runs: Vec<Run> = trials.iter().map(|of| (of, of.load.as_ref().unwrap())).collect();
            population(&results, &runs).unwrap().places[0].waiting.unwrap()
        };
        assert!((waiting(&results.trials) - 4.0).abs() < 1e-6);
        // If there is no other, it is all there is.
        assert!((waiting(&results.trials[1..]) - 90.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_counted_twice_is_taken_off_threads_unless_it_is_more_than_they_have() {
        let check = |over: f64, expected: [f64; 2]| {
            let mut figures = [0.4, 0.6];
            take_off(over, figures.iter_mut().collect());
            let near = |(found, expected): (f64, f64)| (found - expected).abs() < 1e-9;
            assert!(figures.into_iter().zip(expected).all(near), "{over}: {figures:?}");
        };
        check(-2.0, [0.4, 0.6]);
        check(0.5, [0.2, 0.3]);
        check(2.0, [0.4, 0.6]);
        take_off(1.0, Vec::new());
    }
}
