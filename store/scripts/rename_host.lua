-- rename_host: move the sandboxes of a host to another name, after a store was moved.
-- No supervisor of either name runs.
-- KEYS  root of the sandboxes
-- ARGV  host:text  name:text its new name, or the same, which only drops what its supervisor held
-- Returns  int: number of its sandboxes
-- Cost  O(s): s sandboxes of the host
-- Idempotent  a repeat finds none under the old name
-- include: _sandbox.lua
redis.call('ZREM', root .. ':hosts', host)
for _, held in ipairs({':supervisors', ':silent', ':isolation'}) do redis.call('HDEL', root .. held, host) end
local ids = redis.call('SMEMBERS', root .. ':host:' .. host)
if name == host then return #ids end
for _, id in ipairs(ids) do
  if field(id, 'status') then
    redis.call('HSET', root .. ':box:' .. id, 'host', name)
    note_change(id)
  end
  redis.call('SADD', root .. ':host:' .. name, id)
end
redis.call('SUNIONSTORE', root .. ':removals:' .. name, root .. ':removals:' .. name, root .. ':removals:' .. host)
redis.call('DEL', root .. ':host:' .. host, root .. ':removals:' .. host)
return #ids
