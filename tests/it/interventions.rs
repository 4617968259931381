//! Experiments in which one resource after the other is made slower, and those with a link between generator and server.

use std::fs;
use std::path::Path;
use std::process::Command;
use weir::lab::results::{Intervention, Results};

fn lab(dir: &Path, experiment: &str) -> Results {
    let (file, out) = (dir.join("experiment.toml"), dir.join("out"));
    fs::write(&file, experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.arg("lab").arg(file).arg("--out").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

/// The knobs of a round, sorted, without the counterpart, which has to stand in front.
fn knobs(of: &[Intervention], round: u32) -> Vec<&str> {
    let of: Vec<_> = of.iter().filter(|one| one.trial.repetition == round).collect();
    assert!(of[0].change.is_none(), "each round begins with nothing changed");
    let mut knobs: Vec<&str> = of[1..].iter().map(|one| one.change.as_ref().unwrap().knob.as_str()).collect();
    knobs.sort_unstable();
    knobs
}

#[test]
fn the_stations_of_a_model_are_made_slower_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"model\"\ntitle = \"Two stations\"\nlevels = [1, 16]\nrepetitions = 2\nwarmup = \"500ms\"\nwindow = \"1s\"\n\
         [target]\nkind = \"simulated\"\n[[target.station]]\nname = \"cpu\"\nservers = 1\ndemand = \"100us\"\n\
         [[target.station]]\nname = \"disk\"\nservers = 1\ndemand = \"1ms\"\n\
         [interventions]\nrounds = 2\nwindow = \"20s\"\n[[workload]]\nname = \"w\"\n",
    );
    assert_eq!(results.trials.len(), 4, "interventions are no rows");
    assert_eq!([knobs(&results.interventions, 0), knobs(&results.interventions, 1)], [["cpu", "disk"]; 2]);
    let goodput = |one: &Intervention| one.trial.load.as_ref().unwrap().goodput_rps;
    for one in &results.interventions {
        assert_eq!((one.trial.level, one.trial.load.as_ref().unwrap().window_secs), (16, 20.0));
        if one.change.as_ref().is_some_and(|change| change.knob == "disk") {
            assert!(goodput(one) < 0.85 * goodput(&results.interventions[0]), "{}", goodput(one));
        }
    }
}

/// Asserts on what was done, not on what it cost.
#[test]
fn a_server_is_made_slower_while_it_runs_and_then_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"live\"\ntitle = \"A server\"\nlevels = [2]\nrepetitions = 1\nwarmup = \"100ms\"\nwindow = \"300ms\"\n\
         selftest = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\n\
         link = { rate = \"100mbit\", delay = \"1ms\" }\n\
         [interventions]\nrounds = 1\nwindow = \"300ms\"\nknobs = [\"cpu\", \"delay\", \"link\"]\n\
         [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"100\"]\n",
    );
    let done = &results.interventions;
    assert_eq!(knobs(done, 0), ["cpu", "delay", "link"]);
    for one in done {
        assert_eq!(one.trial.failure, None, "{:?}", one.change);
    }
    let of = |knob: &str| {
        let one = done.iter().find(|one| one.change.as_ref().is_some_and(|change| change.knob == knob));
        one.and_then(|one| one.change.clone()).unwrap()
    };
    assert!(of("cpu").added_us > 0.0 && of("cpu").raises[0].contains("server"));
    assert!(of("delay").raises.is_empty() && of("delay").added_us == of("cpu").added_us);
    assert_eq!((of("link").factor, of("link").raises.as_slice()), (Some(1.25), &["link".to_owned()][..]));
    for trial in results.trials.iter().chain(done.iter().map(|one| &one.trial)) {
        assert!(trial.growth("link.down_bytes").unwrap() > 0.0, "the load goes through the link");
        let latency = trial.load.as_ref().unwrap().latency;
        assert!(latency.us_min >= 2_000.0, "{}", latency.us_min);
    }
    let rates: Vec<f64> = done.iter().map(|one| one.trial.opened.gauges["link.bytes_per_sec"]).collect();
    assert_eq!(rates.iter().filter(|rate| **rate == 10e6).count(), 1);
    assert_eq!(rates.iter().filter(|rate| **rate == 12.5e6).count(), 3);
    let parts: Vec<&str> = results.placements.iter().map(|placement| placement.part.as_str()).collect();
    assert_eq!(parts, ["server", "link", "generator"]);
}

#[test]
fn a_link_lets_through_no_more_than_its_rate() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"narrow\"\ntitle = \"A narrow link\"\nlevels = [4]\nrepetitions = 1\nwarmup = \"100ms\"\nwindow = \"500ms\"\n\
         selftest = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\nlink = { rate = \"1mbit\" }\n\
         [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"20\", \"--value-size\", \"500\"]\n",
    );
    assert!(results.interventions.is_empty());
    let trial = &results.trials[0];
    assert_eq!(trial.failure, None);
    let load = trial.load.as_ref().unwrap();
    // What came through in the window, and what was under way before it: a chunk for each client.
    let most = 125_000.0 * load.window_secs + 4.0 * 1_500.0;
    assert!(load.successes as f64 * 500.0 <= most, "{} values of 500 bytes", load.successes);
    let busy = trial.growth("link.busy_secs").unwrap();
    assert!(busy > 0.0 && busy <= trial.elapsed_secs + 0.1, "{busy}");
}
