-- _sha256: the hex SHA-256 of a string.
-- Source: FIPS 180-4. Redis has a library for bits; fakeredis uses arithmetic.
local function words_of_bits()
  if bit then return bit.band, bit.bxor, bit.ror, bit.rshift end
  local function by_nibbles(of_bits)
    local nibbles = {}
    for i = 0, 255 do
      local a, b, value = math.floor(i / 16), i % 16, 0
      for place = 0, 3 do
        local weight = 2 ^ place
        if of_bits(math.floor(a / weight) % 2, math.floor(b / weight) % 2) then value = value + weight end
      end
      nibbles[i] = value
    end
    return function(first, ...)
      local result = first % 4294967296
      for _, other in ipairs({...}) do
        local a, b, value, weight = result, other % 4294967296, 0, 1
        for _ = 1, 8 do
          value, weight = value + nibbles[a % 16 * 16 + b % 16] * weight, weight * 16
          a, b = math.floor(a / 16), math.floor(b / 16)
        end
        result = value
      end
      return result
    end
  end
  local function shift(a, n) return math.floor(a % 4294967296 / 2 ^ n) end
  local function rotate(a, n) return shift(a, n) + a % 2 ^ n * 2 ^ (32 - n) end
  return by_nibbles(function(a, b) return a + b == 2 end), by_nibbles(function(a, b) return a ~= b end), rotate, shift
end

-- The first 32 bits of the fractional parts of the roots of the first primes: square roots for the state, cube roots
-- for the rounds.
local function roots_of_primes()
  local state, rounds, candidate = {}, {}, 2
  local function bits(root) return math.floor((root - math.floor(root)) * 4294967296) end
  while #rounds < 64 do
    local is_prime = true
    for divisor = 2, math.floor(math.sqrt(candidate)) do
      if candidate % divisor == 0 then is_prime = false break end
    end
    if is_prime then
      if #state < 8 then state[#state + 1] = bits(math.sqrt(candidate)) end
      rounds[#rounds + 1] = bits(candidate ^ (1 / 3))
    end
    candidate = candidate + 1
  end
  return state, rounds
end

local function sha256(text)
  local band, bxor, ror, rshift = words_of_bits()
  local state, rounds = roots_of_primes()
  local length = #text
  text = text .. '\128' .. string.rep('\0', (55 - length) % 64)
  for place = 7, 0, -1 do text = text .. string.char(math.floor(length * 8 / 256 ^ place) % 256) end
  local w = {}
  for block = 1, #text, 64 do
    for i = 1, 16 do
      local a, b, c, d = string.byte(text, block + i * 4 - 4, block + i * 4 - 1)
      w[i] = a * 16777216 + b * 65536 + c * 256 + d
    end
    for i = 17, 64 do
      local x, y = w[i - 15], w[i - 2]
      w[i] = (w[i - 16] + w[i - 7] + bxor(ror(x, 7), ror(x, 18), rshift(x, 3)) % 4294967296 +
        bxor(ror(y, 17), ror(y, 19), rshift(y, 10)) % 4294967296) % 4294967296
    end
    local a, b, c, d, e, f, g, h = unpack(state)
    for i = 1, 64 do
      local choice = bxor(g, band(e, bxor(f, g))) % 4294967296
      local most = bxor(band(a, bxor(b, c)), band(b, c)) % 4294967296
      local one = h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) % 4294967296 + choice + rounds[i] + w[i]
      local two = bxor(ror(a, 2), ror(a, 13), ror(a, 22)) % 4294967296 + most
      h, g, f, e, d, c, b, a = g, f, e, (d + one) % 4294967296, c, b, a, (one + two) % 4294967296
    end
    for i, value in ipairs({a, b, c, d, e, f, g, h}) do state[i] = (state[i] + value) % 4294967296 end
  end
  local hex = ''
  for _, value in ipairs(state) do hex = hex .. string.format('%04x%04x', math.floor(value / 65536), value % 65536) end
  return hex
end
