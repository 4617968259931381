//! A row of the record: what was measured at one level of one series, and the checks it stands with.

use super::load::Loaded;

/// A row of the record; what does not apply is absent.
#[derive(Clone, Default)]
pub(super) struct Row {
    /// What grows, and what is asked for meanwhile.
    pub(super) series: &'static str,
    /// Rows, connections or bytes.
    pub(super) level: u64,
    /// Of the server (in series `cache` of this process) for each row or idle connection, in bytes; of a row beyond key
    /// and value.
    pub(super) memory_bytes: Option<f64>,
    /// Of the kernel for each idle connection, both of its ends together, in bytes.
    pub(super) kernel_bytes: Option<f64>,
    /// Resident memory of the process, in bytes.
    pub(super) resident_bytes: Option<f64>,
    pub(super) load: Option<Loaded>,
}

impl Row {
    /// What the checks say: `valid`, `generator-limited` or `invalid`. `None` where no load was measured.
    pub(super) fn standing(&self) -> Option<&'static str> {
        self.load.as_ref().map(Loaded::standing)
    }
}

/// A column of the record.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// For people.
    pub(super) head: &'static str,
    /// Whether it is worth a column where there is little room.
    pub(super) in_page: bool,
    decimals: usize,
    value: fn(&Row) -> Option<f64>,
}

impl Column {
    /// Empty where the row has no such figure.
    pub(super) fn cell(&self, row: &Row) -> String {
        match (self.value)(row) {
            Some(value) => format!("{value:.*}", self.decimals),
            None => String::new(),
        }
    }
}

const fn column(
    name: &'static str,
    head: &'static str,
    in_page: bool,
    decimals: usize,
    value: fn(&Row) -> Option<f64>,
) -> Column {
    Column { name, head, in_page, decimals, value }
}

macro_rules! loaded {
    ($field:ident) => {
        |row| row.load.as_ref().map(|load| load.$field)
    };
}

/// The columns behind series and level.
pub(super) const COLUMNS: &[Column] = &[
    column("memory_bytes_each", "B each", true, 1, |row| row.memory_bytes),
    column("kernel_bytes_each", "kernel B", true, 0, |row| row.kernel_bytes),
    column("resident_bytes", "resident", false, 0, |row| row.resident_bytes),
    column("server_cpu_us", "CPU µs", true, 3, loaded!(cpu_us)),
    column("kernel_share", "kernel", true, 2, loaded!(kernel_share)),
    column("goodput_rps", "req/s", true, 0, loaded!(goodput_rps)),
    column("mb_per_sec", "MB/s", true, 1, loaded!(mb_per_sec)),
    column("latency_us_p50", "p50 µs", true, 1, loaded!(us_p50)),
    column("latency_us_p99", "p99 µs", true, 1, loaded!(us_p99)),
    column("little_residual_ratio", "Little", false, 4, loaded!(little)),
    column("error_ratio", "errors", false, 6, loaded!(error_ratio)),
    column("generator_core_share", "generator", true, 2, loaded!(generator_share)),
    column("server_core_share", "server", true, 2, loaded!(server_share)),
    column("windows", "windows", false, 0, loaded!(windows)),
];

/// The record as CSV.
pub(super) fn csv(rows: &[Row]) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let mut text = format!("series,level,{},standing\n", names.join(","));
    for row in rows {
        let cells = cells(row).join(",");
        text += &format!("{},{},{cells},{}\n", row.series, row.level, row.standing().unwrap_or_default());
    }
    text
}

/// Prints some rows as a table.
pub(super) fn print(rows: &[Row]) {
    let mut heads = format!("{:<22} {:>9}", "series", "level");
    COLUMNS.iter().for_each(|column| heads += &format!(" {:>10}", column.head));
    println!("\n{heads}");
    for row in rows {
        let mut line = format!("{:<22} {:>9}", row.series, row.level);
        cells(row).iter().for_each(|cell| line += &format!(" {cell:>10}"));
        println!("{line} {}", row.standing().unwrap_or_default());
    }
}

fn cells(row: &Row) -> Vec<String> {
    COLUMNS.iter().map(|column| column.cell(row)).collect()
}
