-- refuse_call: count a model's call that a budget refuses, and ask a person for the same amount once more, once per
-- budget and owner. Audits the first refusal of a day per sandbox and budget, and that a person was asked.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  owner:text its key; "" none  setting:text of the budget  name:text of the model's host
--       port:digits of it  why:json canonical  time:text now, UTC with Z  kept:int ms for which a day's audit is kept
--       actor:json the sandbox, canonical  days:int seconds for which a day is kept
--       nanos:digits? that an approval adds  tokens:digits? likewise; if both are absent, nobody is asked
--       day:digits of the refusal, from 1970  seen_nanos:digits approved before it  seen_tokens:digits likewise
--       span:int µs after which a request expires; 0: never  most:int pending ones in all
-- Returns  (outcome:text unnoted:int): number of audit entries that are not noted; the outcome is "asked": by this
--          call, "waiting", "rejected", "expired", "full": too many are pending, "changed": more was approved, or a day
--          began, meanwhile, or "untold": nobody can be asked
-- Cost  O(1)
-- Idempotent  a repeat counts twice, is not audited again and asks nobody again
-- Kept  not proven: a lost count does no harm, and the next refusal repeats a lost request
-- include: _spending.lua
-- include: _sha256.lua
-- include: _destinations.lua
local MOST_REFUSED = 8192 -- characters of ids of sandboxes to notify of an approval
local function reply(outcome) return {outcome, redis.call('XLEN', root .. ':unnoted')} end
redis.call('HINCRBY', root .. ':spent_on:' .. today, 'refused', 1)
redis.call('HINCRBY', root .. ':spent_on:' .. today, 'refused ' .. owner, 1)
redis.call('EXPIRE', root .. ':spent_on:' .. today, days)
redis.call('HINCRBY', root .. ':models', 'refused', 1)
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return reply('untold') end
redis.call('HINCRBY', root .. ':spent:' .. sandbox, 'refused', 1)
local by, tally = {time = time, kept = kept}, ':tally:' .. sandbox .. ':' .. string.sub(time, 1, 10)
if redis.call('HSETNX', root .. tally, setting, '1') == 1 then
  redis.call('EXPIRE', root .. tally, 86400)
  audit(by, 'refused', actor, {name = name, port = port, sandbox = sandbox, reason = why})
end
if nanos == '' and tokens == '' then return reply('untold') end

local is_day = setting ~= 'MODEL_BUDGET_CONVERSATION'
local suffix = setting == 'MODEL_BUDGET_KEY' and ' ' .. owner or ''
local allowed = redis.call('HMGET', root .. (is_day and ':spent_on:' .. today or ':spent:' .. sandbox),
  'allowed_nanos' .. suffix, 'allowed_tokens' .. suffix)
if (is_day and day ~= today) or (allowed[1] or '0') ~= seen_nanos or (allowed[2] or '0') ~= seen_tokens then
  return reply('changed')
end
local asker = is_day and 'day.' .. today or sandbox
local at = (suffix == '' and setting or setting .. '.' .. owner) .. ':0'
local item = current_request(by, asker, at)
if item then
  item.tries, item.tried_at = string.format('%.0f', item.tries + 1), now
  local refused = item.refused or item.sandbox
  if #refused < MOST_REFUSED and not string.find(' ' .. refused .. ' ', ' ' .. sandbox .. ' ', 1, true) then
    item.refused = refused .. ' ' .. sandbox
  end
  keep(asker, at, item)
  return reply(item.state == 'reject' and 'rejected' or item.state)
end
if redis.call('ZCARD', root .. ':asking') >= most then return reply('full') end
local ends = is_day and string.format('%.0f', (today + 1) * 86400000000) or ''
local until_at = span == 0 and '' or string.format('%.0f', now + span)
if ends ~= '' and (until_at == '' or tonumber(until_at) > tonumber(ends)) then until_at = ends end
item = {name = setting, port = '0', program = '', tries = '1', state = 'waiting', since = now, until_at = until_at,
  tried_at = now, once = '', sandbox = sandbox, key = suffix == '' and '' or owner,
  day = is_day and today or '', ends = ends, nanos = nanos, tokens = tokens}
keep(asker, at, item)
if is_day then redis.call('EXPIRE', root .. ':asked:' .. asker, 172800) end
audit(by, 'asked', actor, {name = setting, port = '0', key = item.key, sandbox = sandbox, reason = why,
  digest = digest_of(asker, item), item = item})
return reply('asked')
