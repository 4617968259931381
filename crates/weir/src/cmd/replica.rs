//! `weir replica`: makes a PostgreSQL follow the stores, and says how it does.

use super::serve::store_urls;
use super::{of_store, say};
use store::{Error, Kind, replica};

/// Keep a copy of PostgreSQL stores on another PostgreSQL server, for `weir serve --read-fallback`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Make the copy, in an empty database, and wait until all values are in it
    Init(Ends),
    /// Show how far the copy is behind each store
    Status(Ends),
}

#[derive(clap::Args)]
struct Ends {
    /// URL of the copy
    #[arg(long, value_name = "URL", env = "WEIR_READ_FALLBACK", hide_env_values = true)]
    replica: String,

    /// The stores, as for weir serve. The PostgreSQL server that gets the copy has to reach these URLs, too
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
        _ if error.to_string().contains("; ") => of_store(error),
        Kind::Config => kv::Error::input(error).hint("`weir replica --help` shows what it takes"),
        _ => kv::Error::new(error).hint("start it, and say it again: what is done already stays"),
    }
}
