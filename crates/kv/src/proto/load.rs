//! What `weir load` reports, as JSON: the one thing the lab knows of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The JSON schema of a [`LoadReport`], made of its types and their comments: what is published in docs/schemas.
pub const LOAD_REPORT_SCHEMA: &str = include_str!("../../../../docs/schemas/load-report.schema.json");

/// What just happened in a load: a line of `weir load --events`, for whoever samples the machine meanwhile.
///
/// The preload's progress and what is counted in the warm-up are for the display of `weir load` and are no such lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LoadEvent {
    /// The keys are being written and read back.
    Preloading {
        /// Requests that succeeded.
        requests: u64,
        /// Of how many.
        of: u64,
    },
    /// Every key of the workload is written and read back.
    Preloaded {
        /// How many keys.
        keys: u64,
        /// How long it took.
        secs: f64,
    },
    /// The warm-up is over; from now on every completion counts.
    WindowStart,
    /// All clients are past a second of the window.
    Second {
        /// Which, counted from the window's start; those of the warm-up are below zero.
        second: i64,
        /// What was seen in it.
        #[serde(flatten)]
        report: SecondReport,
        /// Complete answers by their status.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        statuses: BTreeMap<String, u64>,
    },
    /// They are past a bin of it that is shorter than a second; only where `--bin` asked for such.
    Bin {
        /// Which, counted likewise.
        bin: i64,
        /// What was seen in it.
        #[serde(flatten)]
        report: SecondReport,
    },
    /// The measured part is over. The last of its seconds may be told behind it.
    WindowEnd,
    /// The last line.
    Report(Box<LoadReport>),
}

/// What one run of the load generator saw in its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadReport {
    /// The version of this shape: raised when a reader of the old one would misread the new one.
    pub format: u32,
    /// The workload's name.
    pub workload: String,
    /// The workload in one sentence; empty in reports from before it was said, here and below.
    #[serde(default)]
    pub about: String,
    /// In which words it was asked for; empty in reports from before there was a choice.
    #[serde(default)]
    pub dialect: String,
    /// What each operation was to be of all requests, 0–1.
    #[serde(default)]
    pub mix: BTreeMap<String, f64>,
    /// Which keys were named, as `--distribution` writes it; empty where no request names a key.
    #[serde(default)]
    pub distribution: String,
    /// How many keys there were; 0 where no request names one.
    #[serde(default)]
    pub keys: u64,
    /// How long the values were, as `--value-size` writes it: `100` or `100-1000`.
    #[serde(default)]
    pub value_bytes: String,
    /// Connections, each with one request in flight.
    pub clients: u32,
    /// When they sent, as the flags say it: `closed`, `closed, think 10ms`, `constant 1000/s`, `poisson 1000/s`; empty in
    /// reports from before there was a choice: they are of a closed loop.
    #[serde(default)]
    pub pacing: String,
    /// Threads that drove them.
    pub threads: u32,
    /// What the operation streams were drawn from.
    pub seed: u64,
    /// The unmeasured part before the window.
    pub warmup_secs: f64,
    /// The measured part, by the clock: from the first to the last instant at which completions counted.
    pub window_secs: f64,
    /// Requests completed in the window, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Successes per second: the headline.
    pub goodput_rps: f64,
    /// Failed attempts over all attempts, 0–1. In an open loop the requests that were left without an answer are among both.
    pub error_ratio: f64,
    /// Of all attempts, failed ones included: in a closed loop from the instant the client was free to send, in an open
    /// one from the instant the request was to be sent, with the requests that are `unfinished`.
    pub latency: Latency,
    /// The same from the instant each was sent, waiting not included. `None` in a closed loop, where it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Latency>,
    /// The time to the first byte of the answer, from where `latency` begins, in an open loop `service`; of all attempts that had an
    /// answer. `None` in reports from before it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Latency>,
    /// How the schedule of an open loop was kept; `None` in a closed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleReport>,
    /// Per kind of request: `get`, `put`, `delete`, `compute_prime`, `compute_hash`, `put_if_absent`, `put_if_match`, `delete_if_match`.
    pub operations: Vec<OperationReport>,
    /// Failed attempts by class: `refused`, `reset`, `closed_early` (in reports from before there were more than eight classes
    /// `short_body`), `wrong_length`, `slow_body`, `timeout`, `malformed`, `wrong_value`, `stale_value`, `http_4xx`, `http_429`,
    /// `http_5xx`, `http_503_not_applied`, `http_503_unknown`, `http_504`, `unexpected_status`, `unexpected_body`, `tls`, `stream_reset`, `goaway`.
    pub errors: BTreeMap<String, u64>,
    /// Of each class of failures one request with its answer; empty in reports from before there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureExample>,
    /// The servers, in the order of the URLs; empty in reports from before they were told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerReport>,
    /// Complete answers by their status; empty in reports from before they were counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<String, u64>,
    /// Which reads were to be compared as a whole, as `--verify` writes it; empty in reports from before there was a choice:
    /// none were.
    #[serde(default)]
    pub verify: String,
    /// Reads whose value was compared as a whole, the wrong and stale ones among them.
    #[serde(default)]
    pub verified: u64,
    /// Connections that these attempts began; 0 in reports from before they were counted.
    #[serde(default)]
    pub connects: u64,
    /// How long it took from the call to connect until the first bytes were sent, of the connections that were made. `None`
    /// where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<Latency>,
    /// Time that clients, all together, spent in the window neither in a request nor free to send one:
    /// backing off after a failure.
    pub backoff_secs: f64,
    /// Time that clients of a closed loop, all together, spent in the window thinking. Over HTTP/2 this includes what the generator does
    /// between an answer and the next request.
    #[serde(default)]
    pub think_secs: f64,
    /// The mean number of requests in flight in the window, sent and not over: counted at each change, not made of latencies.
    /// `None` in reports from before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_mean: Option<f64>,
    /// Requests in flight when the window ended. They are in no other count but `unfinished`.
    #[serde(default)]
    pub in_flight_at_end: u64,
    /// Clients of a closed loop that were left without an answer, so that the latencies are of the others: they had none in the window, or
    /// none for a second at its end (in a short window half of it) and more than twice as long as any client had to wait for one before.
    /// Of an open loop, such requests. 0 in reports from before they were counted.
    #[serde(default)]
    pub unanswered: u64,
    /// What has to be added to the sum of all latencies (in an open loop: of all service times) to have all time that passed in
    /// the window: of the requests in flight at its end the part within it, and what passed of it before a client of a closed
    /// loop began, less the part before it of the requests it counts.
    #[serde(default)]
    pub edge_secs: f64,
    /// Processor time of the generator in the window, user and system.
    pub cpu_secs: f64,
    /// How long the generator's threads waited for a core in the window, all together; `None` where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay_secs: Option<f64>,
    /// The window in bins of one second; a last bin shorter than that is left out.
    pub seconds: Vec<SecondReport>,
    /// The same in shorter bins, where `--bin` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bins: Option<Bins>,
    /// The histograms behind the latencies, where `--histogram` asked for them: `all`, `service`, `send_lag`, and each operation's
    /// successes by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Vec<Bucket>>,
    /// What `--check linearizability` found; `None` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linearizability: Option<LinearizabilityReport>,
    /// The workers among which the clients were divided; empty where this process was the only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerReport>,
}

/// What one server did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerReport {
    /// Its URL.
    pub url: String,
    /// Requests to it completed in the window, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Requests in flight when the window ended.
    pub in_flight_at_end: u64,
    /// How long at the end of the window a request to it was in flight and none ended, if that is more than twice as long as the
    /// longest request to any server took. `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_secs: Option<f64>,
    /// How long before the end of the window the last request succeeded. `None` where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_secs: Option<f64>,
    /// How long before the end of the window the last connection failed or a request had no answer in time. `None` where none
    /// did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_connection_fault_secs: Option<f64>,
}

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailureExample {
    /// The class that it is counted in.
    pub class: String,
    /// The beginning of what was sent, without the value of `Authorization`.
    pub request: String,
    /// Of the answer; 0 where none was complete.
    pub status: u16,
    /// What would have been a success.
    pub expected: String,
    /// The beginning of what arrived; empty where nothing did.
    pub received: String,
}

/// Whether the operations of a run are linearizable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinearizabilityReport {
    /// Operations on keys in the whole run, those outside the window included.
    pub operations: u64,
    /// Operations that took effect; of reads, those that were answered.
    #[serde(default)]
    pub done: u64,
    /// Conditional writes that took no effect as the key was not as they say.
    #[serde(default)]
    pub precondition_failed: u64,
    /// Operations that failed and certainly took no effect, failed reads included.
    #[serde(default)]
    pub not_applied: u64,
    /// Writes that may have taken effect at any time after they were sent, or never.
    #[serde(default)]
    pub unknown: u64,
    /// Keys that they named.
    pub keys: u64,
    /// Keys of which no order of the operations explains all answers.
    pub violations: u64,
    /// Keys with too many operations at once to be decided.
    pub not_decided: u64,
    /// Keys that were written and could not be read at the end in time.
    #[serde(default)]
    pub unread: u64,
    /// The first key with a violation; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Few of its operations that no order explains, each a line of text, with seconds since the first operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
}

/// What one worker did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkerReport {
    /// The command that started it.
    pub command: String,
    /// Its share of the clients.
    pub clients: u32,
    /// Threads that drove them.
    pub threads: u32,
    /// Requests completed in the window, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Of all attempts.
    pub latency: Latency,
    /// Its processor time in the window.
    pub cpu_secs: f64,
    /// From the order to start until its confirmation arrived: it began at most so much later than the coordinator.
    pub start_delay_us: f64,
}

/// How the schedule of an open loop was kept in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScheduleReport {
    /// Requests per second asked for.
    pub offered_rps: f64,
    /// Requests that were to be sent in the window.
    pub due: u64,
    /// Those of them that were sent in it.
    pub sent: u64,
    /// Requests that were due and had not ended when the window did, and were older then than 95 % of the latencies are long.
    /// They are in `latency` with that age.
    #[serde(default)]
    pub unfinished: u64,
    /// How late the generator sent a request that had a connection: its own fault.
    pub send_lag: Latency,
    /// Requests that had to wait for a connection because all were in use.
    pub waited: u64,
    /// Time they waited, all together.
    pub waited_secs: f64,
    /// How long the request that had waited longest was due when the window began.
    pub behind_secs_at_start: f64,
    /// The same when it ended. More than at the start: the queue grows, and latency tells its length.
    pub behind_secs_at_end: f64,
    /// Whether more was offered than the target and its connections took, so that latency is a queue's length.
    pub over_capacity: bool,
}

/// A bucket of a histogram that holds samples, as `[from, to, count]`: the shortest and the longest latency that fall into
/// it, in nanoseconds, and how many did.
pub type Bucket = [u64; 3];

/// One kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OperationReport {
    /// `get`, `put`, `delete`, `compute_prime`, `compute_hash`, `put_if_absent`, `put_if_match` or `delete_if_match`.
    pub operation: String,
    /// Completed, failed ones included.
    pub attempts: u64,
    /// Succeeded.
    pub successes: u64,
    /// Reads that found no such key where the workload allows for it; they count as successes.
    pub absent: u64,
    /// Of the successes only.
    pub latency: Latency,
}

/// The window in bins that are shorter than a second; a last one that was cut off is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bins {
    /// How long each of them is: a whole part of a second.
    pub secs: f64,
    /// From the first of the window on.
    pub list: Vec<SecondReport>,
}

impl LoadReport {
    /// The window in the shortest bins there are: how long each is in seconds, and all of them.
    pub fn finest(&self) -> (f64, &[SecondReport]) {
        self.bins.as_ref().map_or((1.0, &self.seconds), |bins| (bins.secs, &bins.list))
    }
}

/// One second of the window, or one of its [`Bins`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SecondReport {
    /// Requests completed, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Mean latency of all attempts.
    pub latency_us_mean: f64,
    /// Median, to two digits, here and below; 0 in reports from before it was kept.
    #[serde(default)]
    pub latency_us_p50: f64,
    /// 95th percentile.
    #[serde(default)]
    pub latency_us_p95: f64,
    /// 99th percentile.
    #[serde(default)]
    pub latency_us_p99: f64,
    /// Longest.
    #[serde(default)]
    pub latency_us_max: f64,
    /// Requests that were due at its end and not sent; `None` where that is not known: but for an open loop with even gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backlog: Option<u64>,
}

/// A latency distribution, in microseconds. All zero where `count` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean, exact (a sum, not read off the histogram).
    pub us_mean: f64,
    /// Shortest.
    pub us_min: f64,
    /// Median.
    pub us_p50: f64,
    /// 90th percentile.
    pub us_p90: f64,
    /// 95th percentile; 0 in reports from before it was kept.
    #[serde(default)]
    pub us_p95: f64,
    /// 99th percentile.
    pub us_p99: f64,
    /// 99.9th percentile.
    pub us_p999: f64,
    /// Longest.
    pub us_max: f64,
    /// Samples longer than the histogram reaches; they are counted at its end.
    pub clipped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};
    use std::fs;

    const PATH: &str = "../../docs/schemas/load-report.schema.json";

    /// Calls `with` for the object and all objects in it.
    fn walk(value: &mut Value, with: &mut dyn FnMut(&mut Map<String, Value>)) {
        if let Value::Object(object) = value {
            with(object);
        }
        match value {
            Value::Object(object) => object.values_mut().for_each(|value| walk(value, with)),
            Value::Array(values) => values.iter_mut().for_each(|value| walk(value, with)),
            _ => {}
        }
    }

    /// The schema as the types have it: each doc comment a description, on one line.
    fn schema() -> Value {
        let mut schema = schemars::schema_for!(LoadReport).to_value();
        walk(&mut schema, &mut |object| {
            if let Some(Value::String(told)) = object.get_mut("description") {
                *told = told.split_whitespace().collect::<Vec<_>>().join(" ");
                // What Rust calls so is not in the document.
                *told = told.replace("; `None`", "; absent").replace("`None`", "Absent");
            }
        });
        schema["title"] = json!("The report of weir load");
        schema
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        if std::env::var_os("WEIR_WRITE_SCHEMA").is_some() {
            fs::write(PATH, &text).unwrap();
        }
        let told = "write it anew with WEIR_WRITE_SCHEMA=1 cargo test -p kv proto::load";
        assert!(fs::read_to_string(PATH).unwrap() == text, "{PATH} is not of these types; {told}");
    }

    #[test]
    fn every_field_is_described() {
        let mut lacking = Vec::new();
        walk(&mut schema(), &mut |object| {
            // What a shape of several holds is described with the shape.
            if object.get("additionalProperties") == Some(&json!(false)) {
                return;
            }
            let Some(Value::Object(properties)) = object.get("properties") else { return };
            for (name, property) in properties {
                let told = property.get("description").and_then(Value::as_str).unwrap_or_default();
                // Links are for who reads the code.
                if told.is_empty() || told.contains("[`") {
                    lacking.push(format!("{name}: {told:?}"));
                }
            }
        });
        assert!(lacking.is_empty(), "{}", lacking.join("\n"));
    }
}
