-- The shop's own table: what the jobs are about.
CREATE TABLE relay_demo.orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cents      integer NOT NULL CHECK (cents > 0),
    created_at timestamptz NOT NULL DEFAULT now()
)
