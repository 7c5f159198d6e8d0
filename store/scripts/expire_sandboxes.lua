-- expire_sandboxes: ask for the deletion of sandboxes that failed long ago; those without a host are removed at once.
-- KEYS  1 root of the sandboxes
-- ARGV  1 µs for which a failed sandbox is kept
-- Returns  number of those that expired
-- Cost  O(100 log s): s sandboxes
-- Idempotent  a repeat finds them removed, or asks for the same
-- Log  none
-- Kept  proven
-- include: _clock.lua
-- include: _sandbox.lua
local before, expired = now - ARGV[1], 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':created:ERROR', '-inf', before, 'LIMIT', 0, 100)) do
  if tonumber(field(id, 'changed_at')) <= before then
    expired = expired + 1
    if field(id, 'host') == '' then
      remove(id)
    else
      leave(id)
      signal(id)
    end
  end
end
return expired
