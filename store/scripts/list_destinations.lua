-- list_destinations: what waits for a decision, of all sandboxes or of one, the longest wait first; what a rule
-- decides by now waits no longer.
-- KEYS  1 root of the sandboxes
-- ARGV  1 most of them   2 sandbox id ("" all)
-- Returns  {sandbox id, its conversation where it has exactly one (else empty), destination as JSON, …}
-- Cost  O(w): w that wait
-- Idempotent  reads only
-- Log  none
-- include: _clock.lua
-- include: _destinations.lua
local most, only = tonumber(ARGV[1]), ARGV[2]
local found = {}
for _, member in ipairs(redis.call('ZRANGE', root .. ':asking', 0, -1)) do
  local sandbox, at = string.match(member, '^(%S+) (%S+)$')
  if (only == '' or only == sandbox) and #found < most * 3 then
    local item = asked_of(sandbox, at)
    if item and item.state == 'waiting' and not ruled(item.name, item.port) then
      local places = redis.call('ZRANGE', root .. ':places:' .. sandbox, 0, 1)
      found[#found + 1] = sandbox
      found[#found + 1] = #places == 1 and places[1] or ''
      found[#found + 1] = cjson.encode(item)
    end
  end
end
return found
