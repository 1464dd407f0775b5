"""Limits of this process and of one task. Beyond the limits of this process, Spark's executors do the work.

They stand here together so that their values can be compared. `widen.spark.engine` and the functions that use them say
what happens beyond a limit.
"""

from __future__ import annotations

# Sources: what this process reads without Spark, and what the driver does without starting a job.

SOURCE_BYTES = 10**9
"""From this size of a source, Spark is worth its start; about the uncompressed size if it is compressed.

With the kernel a core takes at least 100 MB a second, and Spark takes five seconds or more to start, so on two cores
no cluster is done earlier with less. Without the kernel this process takes longer; see `widen.spark.engine`.
"""

STAGED_BYTES = 512 * 2**20
"""The maximum size of a batch that a sink ingests in the process that Spark gives it, by default."""

STAGED_FILE_BYTES = 32 * 2**20
"""The size of the rows in a file that a task of a sink stages; the commit reads the files side by side."""

POOL_BYTES = 32 * 2**20
"""From this size of a source, several processes are worth their start."""

DRIVER_TASK_BYTES = 32 * 2**20
"""The maximum size of a source whose tasks the driver runs itself, with the kernel.

For less, a Spark job costs more than it saves; see ``docs/scale.md``.
"""

RANGED_FILES = 10_000
"""The maximum number of files that are listed in the plan of a query."""

DRIVER_HEADS = 64
"""The maximum number of files whose first bytes the driver checks. A Spark job takes longer than to read so many."""

REMOTE_FILES = 256
"""The maximum number of files in an object store that this process reads: each takes some requests, one by one."""

CSV_SCAN_BYTES = 2**28
"""The maximum number of bytes that this process searches for a quote. Without a quote, no Spark job has to look for
fields with line breaks."""

CSV_PROOF_BYTES = 2**30
"""The maximum size of a file that one task of the proof reads: a core reads about 100 MB a second."""

# Reads of tables.

QUERY_BYTES = 128 * 2**20
"""The maximum size of the files that a query without Spark reads."""

EQUALITY_BYTES = 256 * 2**20
"""The maximum size of the files that this process searches for rows that equality deletes remove."""

DRIVER_FOOTERS = 64
"""The maximum number of footers that the driver reads to learn types and bounds; the executors read more."""

REPAIRED_FILES = 100_000
"""The maximum number of files whose bounds the commit that widens a column makes exact: each takes a line."""

DRIVER_SCHEMAS = 256
"""The maximum number of footers that the driver reads to find columns by their ids; the executors read more."""

BROADCAST_ROWS = 1_000_000
"""The maximum number of deleted rows, or of bitmap words with deleted rows, that are broadcast to the executors."""

READ_TASK_BYTES = 128 * 2**20
"""The size of the files that a task reads or rewrites; Spark's default for its own readers."""

# Changes of rows.

CHANGED_BYTES = 256 * 2**20
"""The maximum size of the files that this process searches for rows to change."""

COPIED_BYTES = 256 * 2**20
"""The maximum size of the files that this process copies without some of their rows."""

SORTED_BYTES = 128 * 2**20
"""The maximum size of the files of a partition whose rows this process, or a task, holds to sort them."""

HELD_BYTES = 64 * 2**20
"""The maximum size of the new values of a change that this process holds."""

MATCHED_ROWS = 64 * BROADCAST_ROWS
"""The maximum number of rows of files whose matching positions Spark returns to this process."""

CHANGE_TASK_BYTES = 32 * 2**20
"""The average size of the files that a task, or a thread of this process, changes; it takes whole files."""

CHANGE_THREADS = 4
"""How many files this process changes at the same time."""

# Loads by key.

KEYED_RECORDS = 4_000_000
"""The maximum number of records of a load by key that is decided at once; it takes about 250 bytes for each."""

BUCKET_RECORDS = 2_000_000
"""About how many records of a larger load by key one task decides."""

BUCKET_BYTES = 128 * 2**20
"""About the size of the files of such records, whose contents may decide."""

KEYED_BYTES = 512 * 2**20
"""The maximum size of the files of the table that this process searches for keys; beyond it tasks do."""

KEY_LIST_BYTES = 32 * 2**20
"""The maximum size of the lists of deleted keys that the driver reads."""

DRIVER_KEYS = 100_000
"""The maximum number of deleted keys that the driver collects and writes itself; a Spark job would take longer."""
