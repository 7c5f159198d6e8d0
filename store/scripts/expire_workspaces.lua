-- expire_workspaces: request the deletion of workspace sandboxes that have been unused for long.
-- KEYS  root of the sandboxes
-- ARGV  unused:int µs without use
-- Returns  int: number of expired ones
-- Cost  O(w): w keys with a workspace sandbox
-- Idempotent  a repeat finds them gone
-- include: _sandbox.lua
local expired, words = 0, redis.call('HGETALL', root .. ':workspaces')
for i = 1, #words, 2 do
  local owner, id = words[i], words[i + 1]
  local active, wanted = unpack(redis.call('HMGET', root .. ':box:' .. id, 'active_at', 'wanted'))
  if redis.call('EXISTS', root .. ':ended:' .. id) == 1 or wanted == 'deleted' then
    redis.call('HDEL', root .. ':workspaces', owner)
  elseif active and now - active >= unused then
    redis.call('HDEL', root .. ':workspaces', owner)
    end_sandbox(id)
    expired = expired + 1
  end
end
return expired
