// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title A token under Mallory's control: what she sets decides how it misbehaves.
contract HostileToken is ERC20("Hostile", "HOST") {
    /// @notice Of each transfer, this many hundredths are burnt.
    uint256 public feePercent;
    /// @notice Taken from the sender beside what is sent.
    uint256 public surcharge;
    /// @notice Made for the receiver beside what is sent.
    uint256 public bonus;
    /// @notice Whether transfers move nothing and answer false.
    bool public answersFalse;
    mapping(address account => bool refused) public blacklisted;
    /// @notice What is called, in whose name this token is, when a transfer starts and when it ends.
    address public target;
    bytes public data;
    bool public isBefore;
    bool public wasCalled;
    bool public didSucceed;
    bytes public answer;

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function burn(address from, uint256 amount) external {
        _burn(from, amount);
    }

    function setFee(uint256 percent) external {
        feePercent = percent;
    }

    function setSurcharge(uint256 amount) external {
        surcharge = amount;
    }

    function setBonus(uint256 amount) external {
        bonus = amount;
    }

    function setAnswersFalse(bool value) external {
        answersFalse = value;
    }

    function setBlacklisted(address account, bool value) external {
        blacklisted[account] = value;
    }

    function setHook(address target_, bytes calldata data_, bool isBefore_) external {
        target = target_;
        data = data_;
        isBefore = isBefore_;
        wasCalled = false;
        didSucceed = false;
        answer = "";
    }

    /// @notice Act in this token's name, as an account of the escrow.
    function act(address to, bytes calldata data_) external {
        (bool ok, bytes memory said) = to.call(data_);
        if (!ok) {
            assembly {
                revert(add(said, 32), mload(said))
            }
        }
    }

    function transfer(address to, uint256 value) public override returns (bool) {
        if (answersFalse) return false;
        return super.transfer(to, value);
    }

    function transferFrom(address from, address to, uint256 value) public override returns (bool) {
        if (answersFalse) return false;
        return super.transferFrom(from, to, value);
    }

    function _update(address from, address to, uint256 value) internal override {
        if (from == address(0) || to == address(0)) {
            super._update(from, to, value);
            return;
        }
        require(!blacklisted[from] && !blacklisted[to], "blacklisted");
        if (isBefore) _hook();
        uint256 fee = (value * feePercent) / 100;
        super._update(from, to, value - fee);
        if (fee != 0) super._update(from, address(0), fee);
        if (surcharge != 0) super._update(from, address(0), surcharge);
        if (bonus != 0) super._update(address(0), to, bonus);
        if (!isBefore) _hook();
    }

    function _hook() private {
        if (target == address(0) || wasCalled) return;
        wasCalled = true;
        (didSucceed, answer) = target.call(data);
    }
}
