//! Busy and idle time of single cores, from `/proc/stat`: whoever it was that kept them busy.

use super::{Context, Reading, Sampler, numbers, of_file, tick_secs};

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let cores = Some(context.cores.clone()).filter(|cores| !cores.is_empty())?;
    Some(of_file("/proc/stat", move |text, into| parse(text, &cores, tick_secs(), into)))
}

fn parse(text: &str, cores: &[usize], tick_secs: f64, into: &mut Reading) {
    for core in cores {
        let name = format!("cpu{core} ");
        let Some(ticks) = text.lines().find_map(|line| line.strip_prefix(&*name)) else { continue };
        // user nice system idle iowait irq softirq steal; guest time, behind them, is already in user.
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = numbers(ticks)[..] else {
            continue;
        };
        into.count(format!("core.{core}.busy_secs"), (user + nice + system + irq + softirq) * tick_secs);
        into.count(format!("core.{core}.idle_secs"), (idle + iowait) * tick_secs);
        into.count(format!("core.{core}.softirq_secs"), softirq * tick_secs);
        into.count(format!("core.{core}.steal_secs"), steal * tick_secs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cores_asked_for_are_read() {
        let text =
            "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 10 1 20 900 5 2 3 40 8 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5 0\n";
        let mut reading = Reading::default();
        parse(text, &[0], 0.01, &mut reading);
        let expected = [
            ("core.0.busy_secs", 0.36),
            ("core.0.idle_secs", 9.05),
            ("core.0.softirq_secs", 0.03),
            ("core.0.steal_secs", 0.4),
        ];
        let read: Vec<_> = reading.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(read, expected);
    }
}
