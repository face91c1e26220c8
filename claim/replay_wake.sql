-- Wakes idle relays at commit, as an enqueue does.
SELECT count(*) FROM :relay_notify()
