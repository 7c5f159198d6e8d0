-- settle_labels: record that the agent of a conversation has its title and tags, unless a client has changed them
-- since. Nothing that clients see changes: neither its revision nor the time of its last change.
-- KEYS  root of the conversation
-- ARGV  due:text value of `labels_due` when the agent received them
-- Returns  flag: whether the agent has them
-- Cost  O(1)
-- Idempotent  by `due`
if redis.call('HGET', root, 'labels_due') ~= due then return 0 end
return redis.call('HDEL', root, 'labels_due')
