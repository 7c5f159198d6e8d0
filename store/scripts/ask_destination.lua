-- ask_destination: whether a sandbox may connect to a name and port now; asks a person where nobody has decided it.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 name   3 port   4 program ("" unknown)   5 most that wait in one sandbox
--       6 most destinations that are remembered of one   7 µs after which what waits expires (0 never)
-- Returns  {"allowed", id of the rule that allows it, or ""} | {"asked"}: now, by this call | {"waiting"} | {"rejected"} | {"forbidden"}: by a rule
--          | {"expired"} | {"full", number that wait} | {"many", number that are remembered} | {"ended"}: no such sandbox
-- Cost  O(l + k): l labels of the name; k destinations remembered of the sandbox, where this one is new
-- Idempotent  a repeat counts one more try, and an approval for one connection is used up by the first
-- Log  none
-- Kept  proven
-- include: _clock.lua
-- include: _destinations.lua
local sandbox, name, port, program, most_open, most_known, span = unpack(ARGV)
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return {'ended'} end
local at, key = name .. ':' .. port, root .. ':asked:' .. sandbox
local rule = ruled(name, port)
if rule then
  redis.call('HINCRBY', root .. ':destination_uses', string.match(rule, ' (.+)$'), 1)
  forget(sandbox, at)
  if string.sub(rule, 1, 6) == 'reject' then return {'forbidden'} end
  return {'allowed', string.match(rule, ' (.+)$')}
end

local item = asked_of(sandbox, at)
if item then
  if item.state == 'approve' then
    if item.once == '1' then forget(sandbox, at) end
    return {'allowed', ''}
  end
  item.tries, item.tried_at = string.format('%.0f', item.tries + 1), now
  keep(sandbox, at, item)
  return {item.state == 'reject' and 'rejected' or item.state}
end

forget(sandbox, at)
local known, open = 0, 0
for _, other in ipairs(redis.call('HKEYS', key)) do
  local found = asked_of(sandbox, other)
  if not found then forget(sandbox, other)
  else
    known = known + 1
    if found.state == 'waiting' then open = open + 1 end
  end
end
if open >= tonumber(most_open) then return {'full', open} end
if known >= tonumber(most_known) then return {'many', known} end
keep(sandbox, at, {name = name, port = port, program = program, tries = '1', state = 'waiting', since = now,
  until_at = span == '0' and '' or string.format('%.0f', now + span), tried_at = now, once = ''})
redis.call('HINCRBY', root .. ':destinations', 'asked', 1)
return {'asked'}
