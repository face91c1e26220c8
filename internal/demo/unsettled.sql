-- Jobs that some destination has not accepted.
SELECT id FROM relay_demo.jobs WHERE status <> 'done'
