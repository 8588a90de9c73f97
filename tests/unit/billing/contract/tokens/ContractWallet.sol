// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @title A wallet with code: what its owner signs counts as signed by it (ERC-1271).
contract ContractWallet is IERC1271 {
    address public immutable owner;

    constructor(address owner_) {
        owner = owner_;
    }

    /// @notice Act as this wallet.
    function act(address to, bytes calldata data) external {
        require(msg.sender == owner, "not the owner");
        (bool ok, bytes memory said) = to.call(data);
        if (!ok) {
            assembly {
                revert(add(said, 32), mload(said))
            }
        }
    }

    /// @inheritdoc IERC1271
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        (address signer, ECDSA.RecoverError failure, ) = ECDSA.tryRecover(hash, signature);
        bool ok = failure == ECDSA.RecoverError.NoError && signer == owner;
        return ok ? IERC1271.isValidSignature.selector : bytes4(0xffffffff);
    }
}
