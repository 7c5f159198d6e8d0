-- _rules: the approval rules.
-- The use of a rule is {uses, last_used_at = µs ("" none), expires_at = µs ("" never), max_uses ("" unlimited)}, all as
-- text, because cjson rounds numbers to 14 digits. A rule without a use was revoked. An ended rule is {rule, use,
-- ended_at = µs, ended_by = name}, the latest first.
-- include: _clock.lua
local DAY = 86400000
local MOST_ENDED = 1000

local function use_of(id)
  local stored = redis.call('HGET', root .. ':uses', id)
  return stored and cjson.decode(stored)
end

local function has_expired(use)
  return use.expires_at ~= '' and tonumber(use.expires_at) <= tonumber(now)
end

local function set_use(id, use)
  redis.call('HSET', root .. ':uses', id, cjson.encode(use))
end

-- by: name of the revoker, as JSON; '""' if it had expired.
local function forget(id, by)
  redis.call('LPUSH', root .. ':ended', '{"rule":' .. redis.call('HGET', root .. ':all', id) .. ',"use":' ..
    redis.call('HGET', root .. ':uses', id) .. ',"ended_at":' .. now .. ',"ended_by":' .. by .. '}')
  redis.call('LTRIM', root .. ':ended', 0, MOST_ENDED - 1)
  redis.call('HDEL', root .. ':all', id)
  redis.call('HDEL', root .. ':uses', id)
end

-- Sets a new version of the rules. It is never repeated, even after Redis was emptied.
local function note_change()
  local version = redis.call('GET', root .. ':version')
  local later = version and tonumber(version) >= tonumber(now)
  redis.call('SET', root .. ':version', later and string.format('%.0f', version + 1) or now)
end
