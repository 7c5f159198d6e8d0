-- _warm: warm sandboxes, which have no conversation yet.
-- Needs `root`, `now` and `note_change`. The field `warm` has the version of the spec from which such a sandbox was
-- started; empty: it is bound, like all others.

local function is_warm(id) return (redis.call('HGET', root .. ':box:' .. id, 'warm') or '') ~= '' end

-- Binds a sandbox to its user: it leaves its pool, and its time begins.
local function bind(id)
  if not is_warm(id) then return end
  redis.call('ZREM', root .. ':warm:' .. redis.call('HGET', root .. ':box:' .. id, 'spec_id'), id)
  redis.call('HSET', root .. ':box:' .. id, 'warm', '', 'active_at', now, 'starting_at', now)
  note_change(id)
end
