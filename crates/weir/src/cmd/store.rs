//! `weir store`: copies an embedded store, and checks and repairs one that no server uses.

use super::{counted, of_store, say};
use ::store::{Checked, Damage, Repaired};
use std::path::PathBuf;

/// Back up, check or repair an embedded store (`file:`).
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List what is damaged in a store that no server uses
    Check(Place),
    /// Copy what is readable in a damaged store to new files, and keep the old files aside
    Repair(Place),
    /// Copy the store to a new directory, also while a server uses it
    Backup(Backup),
}

#[derive(clap::Args)]
struct Place {
    /// Directory of the store, or its URL as for weir serve
    #[arg(value_name = "DIR|URL")]
    store: String,
}

#[derive(clap::Args)]
struct Backup {
    #[command(flatten)]
    place: Place,

    /// The new directory
    #[arg(value_name = "DESTINATION")]
    destination: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<(), kv::Error> {
    match args.action {
        Action::Check(Place { store }) => {
            let checked = ::store::check(&store).map_err(|error| of_store(&error))?;
            show(&checked);
            match checked.damage.len() {
                0 => Ok(()),
                places => {
                    let directory = checked.directory.display();
                    let what = format!("the store is damaged at {}", counted(places as u64, "place"));
                    Err(kv::Error::new(what).hint(match checked.segments {
                        0 => "restore a backup: nothing of the store is left".to_owned(),
                        _ => format!(
                            "restore a backup, or `weir store repair {directory}` keeps what can be read"
                        ),
                    }))
                }
            }
        }
        Action::Backup(Backup { place: Place { store }, destination }) => {
            // As the store may be named, too.
            let plain = destination.to_str().and_then(|text| text.strip_prefix("file:")).map(PathBuf::from);
            let destination = plain.unwrap_or(destination);
            let copied = ::store::backup(&store, &destination).map_err(|error| of_store(&error))?;
            show(&copied);
            Ok(())
        }
        Action::Repair(Place { store }) => {
            let repaired = ::store::repair(&store).map_err(|error| of_store(&error))?;
            show(&repaired.before);
            show_repair(&repaired);
            Ok(())
        }
    }
}

fn show(checked: &Checked) {
    let Checked { directory, segments, bytes, records, rows, row_bytes, damage, torn } = checked;
    let (segments, bytes) = (counted(*segments as u64, "segment"), counted(*bytes, "byte"));
    say(format_args!("{}: {segments}, {bytes}", directory.display()));
    let (rows, row_bytes) = (counted(*rows as u64, "row"), counted(*row_bytes, "byte"));
    say(format_args!("  {} of writes, {rows} ({row_bytes})", counted(*records, "record")));
    damage.iter().for_each(show_damage);
    if let Some((path, range)) = torn {
        let (bytes, file) = (range.end - range.start, path.display());
        say(format_args!("torn end: {file} at {}: {}", range.start, counted(bytes, "byte")));
        say("  the last write, which was not acknowledged; a server cuts it off");
    }
    if damage.is_empty() {
        say("no damage");
    }
}

fn show_damage(damage: &Damage) {
    let file = damage.path.display();
    if damage.is_of_repair {
        return say(format_args!("damage: {damage}"));
    }
    let Some(range) = &damage.range else { return say(format_args!("damage: {file} is missing")) };
    let bytes = counted(range.end - range.start, "byte");
    say(format_args!("damage: {file} at {}: {bytes}", range.start));
    if let Some(unread) = damage.unread {
        say(format_args!("  the disk cannot read the file at {unread}"));
    }
    say(format_args!("  {} in it can be read", counted(damage.readable, "record")));
    for lost in &damage.lost {
        let (begin, end) = (lost.range.start, lost.range.end);
        match &lost.key {
            Some(key) => say(format_args!(
                "  lost: bytes {begin} to {end}, one record, probably of the key {}",
                key.as_bytes().escape_ascii()
            )),
            None if lost.range.is_empty() => say("  lost: an unknown number of records"),
            None => say(format_args!("  lost: bytes {begin} to {end}, an unknown number of records")),
        }
    }
    if damage.lost.is_empty() {
        say("  no record in it is lost");
    }
}

fn show_repair(repaired: &Repaired) {
    let Some(set_aside) = &repaired.set_aside else { return say("nothing was changed") };
    let Checked { damage, rows, .. } = &repaired.before;
    say(format_args!(
        "repaired: {} written anew; the old files are in {}",
        counted(*rows as u64, "row"),
        set_aside.display()
    ));
    let lost = || damage.iter().flat_map(|damage| &damage.lost);
    let (records, bytes) = lost().fold((0, 0), |(records, bytes), lost| match lost.key {
        Some(_) => (records + 1, bytes),
        None => (records, bytes + lost.range.end - lost.range.start),
    });
    let missing = damage.iter().filter(|damage| damage.range.is_none()).count() as u64;
    let parts = [
        (records > 0).then(|| counted(records, "record")),
        (bytes > 0).then(|| format!("{bytes} bytes with an unknown number of records")),
        (missing > 0).then(|| counted(missing, "segment")),
        lost().any(|lost| lost.range.is_empty()).then(|| "an unknown number of records".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        say(format_args!("lost: {}", parts.join(", ")));
        say("  a lost record may have replaced or removed a row: the older value of its key is there again");
    }
    if !repaired.has_map {
        say("  which part of the keys it held could not be read: it is a store of all keys now");
    }
}
