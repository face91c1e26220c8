-- One order; its jobs follow in the same transaction.
INSERT INTO relay_demo.orders (cents) VALUES ($1) RETURNING id
