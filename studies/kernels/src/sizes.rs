//! The studies' entries, and the sizes on which they and their launcher agree.

/// Kernels of the studies in `docs/ladder.md` for each number of taps. `with` gets a row for each:
/// `taps: strip_untiled, strip_tiled, paper_rows, paper_columns, texture_rows, texture_columns`.
#[macro_export]
macro_rules! study_entries {
    ($with:ident) => {
        $with! {
            3: strip_untiled_3, strip_tiled_3, paper_rows_3, paper_columns_3, texture_rows_3, texture_columns_3;
            5: strip_untiled_5, strip_tiled_5, paper_rows_5, paper_columns_5, texture_rows_5, texture_columns_5;
            7: strip_untiled_7, strip_tiled_7, paper_rows_7, paper_columns_7, texture_rows_7, texture_columns_7;
            9: strip_untiled_9, strip_tiled_9, paper_rows_9, paper_columns_9, texture_rows_9, texture_columns_9;
            11: strip_untiled_11, strip_tiled_11, paper_rows_11, paper_columns_11, texture_rows_11, texture_columns_11;
            13: strip_untiled_13, strip_tiled_13, paper_rows_13, paper_columns_13, texture_rows_13, texture_columns_13;
            15: strip_untiled_15, strip_tiled_15, paper_rows_15, paper_columns_15, texture_rows_15, texture_columns_15;
            17: strip_untiled_17, strip_tiled_17, paper_rows_17, paper_columns_17, texture_rows_17, texture_columns_17;
            19: strip_untiled_19, strip_tiled_19, paper_rows_19, paper_columns_19, texture_rows_19, texture_columns_19;
            21: strip_untiled_21, strip_tiled_21, paper_rows_21, paper_columns_21, texture_rows_21, texture_columns_21;
            23: strip_untiled_23, strip_tiled_23, paper_rows_23, paper_columns_23, texture_rows_23, texture_columns_23;
            25: strip_untiled_25, strip_tiled_25, paper_rows_25, paper_columns_25, texture_rows_25, texture_columns_25;
            27: strip_untiled_27, strip_tiled_27, paper_rows_27, paper_columns_27, texture_rows_27, texture_columns_27;
            29: strip_untiled_29, strip_tiled_29, paper_rows_29, paper_columns_29, texture_rows_29, texture_columns_29;
            31: strip_untiled_31, strip_tiled_31, paper_rows_31, paper_columns_31, texture_rows_31, texture_columns_31;
            33: strip_untiled_33, strip_tiled_33, paper_rows_33, paper_columns_33, texture_rows_33, texture_columns_33;
        }
    };
}

macro_rules! study_lists {
    ($($k:literal: $untiled:ident, $tiled:ident, $rows:ident, $columns:ident, $tex_rows:ident, $tex_columns:ident;)*) => {
        /// Entries of the untiled blur, by tap columns.
        pub const STRIP_UNTILED: &[(i32, &str)] = &[$(($k, stringify!($untiled))),*];
        /// Entries of the tiled blur.
        pub const STRIP_TILED: &[(i32, &str)] = &[$(($k, stringify!($tiled))),*];
        /// Entries of the white paper's row pass.
        pub const PAPER_ROWS: &[(i32, &str)] = &[$(($k, stringify!($rows))),*];
        /// Entries of the white paper's column pass.
        pub const PAPER_COLUMNS: &[(i32, &str)] = &[$(($k, stringify!($columns))),*];
        /// Entries of the row pass through a texture.
        pub const TEXTURE_ROWS: &[(i32, &str)] = &[$(($k, stringify!($tex_rows))),*];
        /// Entries of the column pass through a texture.
        pub const TEXTURE_COLUMNS: &[(i32, &str)] = &[$(($k, stringify!($tex_columns))),*];
    };
}

study_entries!(study_lists);

/// The greatest radius in [`study_entries`].
pub const STUDY_RADIUS: i32 = 16;

/// Tap columns and rows of the class project's kernels.
pub const CLASS_TAPS: i32 = 17;
/// Threads, and pixels, along each side of the class project's blocks, of the tiled blur's and of
/// the idle-thread study's.
pub const CLASS_BLOCK: i32 = 16;

/// Pixels of a row that a block of the white paper's row pass computes.
pub const PAPER_ROW: i32 = 128;
/// Threads before those pixels, for the apron; 16 of them keep the first thread's address aligned.
pub const PAPER_LEAD: i32 = 16;
/// Columns and rows of pixels that a block of the white paper's column pass computes.
pub const PAPER_COLUMN: (i32, i32) = (16, 48);
/// Threads of that block in each column.
pub const PAPER_COLUMN_THREADS: i32 = 8;

/// Results of a thread in the passes `steps_rows` and `steps_columns`, one block apart.
pub const STEPS: i32 = 8;
/// Threads of a block in `steps_rows`.
pub const STEPS_ROWS_BLOCK: (i32, i32) = (16, 4);
/// Threads of a block in `steps_columns`.
pub const STEPS_COLUMNS_BLOCK: (i32, i32) = (16, 8);

/// Threads of a block in the passes through a texture.
pub const TEXTURE_BLOCK: (u32, u32) = (16, 12);

/// Taps of the one-dimensional kernels.
pub const LINE_TAPS: i32 = 5;
/// Threads of a block of the one-dimensional kernels.
pub const LINE_BLOCK: i32 = 256;
/// Results of a thread in `line_vector`.
pub const LINE_RUN: i32 = 4;
