-- settle_labels: note that the agent of a conversation has its title and tags, unless a client has changed them since.
-- Nothing that clients see changes: neither its revision nor the time of its last change.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 what was due when the agent was told
-- Returns  1: the agent has them | 0: it does not
-- Cost  O(1)
-- Idempotent  by what was due
if redis.call('HGET', root, 'labels_due') ~= ARGV[1] then return 0 end
return redis.call('HDEL', root, 'labels_due')
