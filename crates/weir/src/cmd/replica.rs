//! `weir replica`: makes a PostgreSQL follow the stores, and says how it does.

use super::say;
use super::serve::store_urls;
use store::{Error, Kind, replica};

/// Copy the PostgreSQL stores that --store names to another PostgreSQL server, and keep the copy up to date (logical replication), for `weir serve --read-fallback`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Set up publications and subscriptions where they are missing, and wait until all rows are copied. The database of the replica must be empty at first
    Init(Ends),
    /// Show for each store whether it is replicated, and the replication lag
    Status(Ends),
}

#[derive(clap::Args)]
struct Ends {
    /// The replica
    #[arg(long, value_name = "URL", env = "WEIR_READ_FALLBACK", hide_env_values = true)]
    replica: String,

    /// The stores, as for weir serve and in the same order; the replica must reach them by these URLs, too
    #[arg(long, value_name = "URL", env = "WEIR_STORE", hide_env_values = true, required = true)]
    store: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<(), kv::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| kv::Error::new(format!("cannot make a runtime: {error}")))?;
    let (Action::Init(ends) | Action::Status(ends)) = &args.action;
    let stores = store_urls(&ends.store)?;
    let lines = runtime.block_on(async {
        match args.action {
            Action::Init(_) => replica::init(&ends.replica, &stores).await,
            Action::Status(_) => replica::status(&ends.replica, &stores).await,
        }
    });
    lines.map_err(|error| failure(&error))?.iter().for_each(say);
    Ok(())
}

fn failure(error: &Error) -> kv::Error {
    match error.kind() {
        Kind::Config => kv::Error::input(error).hint("`weir replica --help` shows what it takes"),
        _ => kv::Error::new(error).hint("start it, and say it again: what is done already stays"),
    }
}
